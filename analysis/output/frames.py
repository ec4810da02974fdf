"""A report as tables (pandas), for CSV files."""

import csv
import json
from collections.abc import Sequence
from io import StringIO
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype
from pydantic import BaseModel

from aiperf.facts import UNCLASSIFIED
from aiperf.records.columns import TIME, TRIAL
from aiperf.untrusted.text import for_cell
from analysis.reading.run_data import RunData
from analysis.reading.work import every_epoch
from analysis.report.energy.parts import UsagePart
from analysis.report.estimates import EffectPart, GoodputPart, LostPart, PlacePart, SignPart
from analysis.report.hybrid.parts import GroupPart, HybridPart, HybridTrialPart, LostGroupPart, ServerPart
from analysis.report.model import (
    FailurePart,
    HyperparameterPart,
    ReplicaPart,
    Report,
    RulePart,
    TimelinePart,
    TrialPart,
)
from analysis.report.roofline.parts import CeilingPart, OperatorPart, RooflinePart, TrialCeilingPart
from analysis.report.workloads import InstancePart, ModelTrialPart, QualityPart, WorkloadPart

RUN = (
    "name",
    "status",
    "ended",
    "started",
    "duration_s",
    "score_ops",
    "regulated_score_ops",
    "peak_ops",
    "sustained_ops",
    "error",
    "replicas",
    "accelerators",
    "ranks",
    "images_trained",
    "images_evaluated",
    "operations_total",
)
"""Columns of the table of the run itself, which has one row."""


def csv_tables(data: RunData, report: Report) -> dict[str, pd.DataFrame]:
    """Tables by name. Nested values are JSON; times are seconds after the start of the run."""
    return {**tables_of(report), "epochs": epoch_table(data)}


def tables_of(report: Report) -> dict[str, pd.DataFrame]:
    """All tables but that of epochs, which a report does not hold."""
    return {
        "run": pd.DataFrame([{name: getattr(report, name) for name in RUN}]),
        "replicas": _replicas(report),
        "timeline": _table(TimelinePart, report.timeline),
        "failures": _table(FailurePart, report.failures),
        "rules": _table(RulePart, report.rules),
        "usage": _table(UsagePart, report.usage),
        **_goodput(report.goodput),
        **({"health": _table(SignPart, report.health.signs)} if report.health is not None else {}),
        **({"places": _table(PlacePart, report.places)} if report.places else {}),
        **({"effects": _table(EffectPart, report.comparison.effects)} if report.comparison is not None else {}),
        **_roofline(report.roofline),
        **_hybrid(report.hybrid),
        **(_science(report.workloads) if report.is_science else _automl(report)),
    }


def _goodput(part: GoodputPart | None) -> dict[str, pd.DataFrame]:
    """Lost hours by cause, of all nodes and of each; none of reports of earlier versions."""
    if part is None:
        return {}
    own = [({"node": node.node}, lost) for node in part.nodes for lost in node.lost]
    return {"lost_hours": _table(LostPart, part.lost), "lost_hours_of_nodes": _placed(LostPart, own)}


def _automl(report: Report) -> dict[str, pd.DataFrame]:
    return {
        "trials": _table(TrialPart, report.trials),
        "hyperparameters": _table(HyperparameterPart, report.hyperparameters),
    }


def _science(parts: Sequence[WorkloadPart]) -> dict[str, pd.DataFrame]:
    """Workloads, their models, the trials and the epochs of those; each row names its place."""
    models = [({"workload": part.workload}, model) for part in parts for model in part.models]
    inner = [({**place, "instance": model.instance}, model) for place, model in models]
    return {
        "workloads": _table(WorkloadPart, parts).drop(columns="models"),
        "models": _placed(InstancePart, models).drop(columns=["curve", "trials"]),
        "model_trials": _placed(ModelTrialPart, [(place, trial) for place, model in inner for trial in model.trials]),
        "quality": _placed(QualityPart, [(place, point) for place, model in inner for point in model.curve]),
    }


def _hybrid(part: HybridPart | None) -> dict[str, pd.DataFrame]:
    """Trainings, the groups and servers of each, and updates by staleness; none if synchronous."""
    if part is None:
        return {}
    trials = [({"trial": trial.trial}, trial) for trial in part.trials]
    groups = [({**place, "group": group.group}, group) for place, own in trials for group in own.group_details]
    late = [
        (trial.trial, staleness, updates)
        for trial in part.trials
        for staleness, updates in enumerate(trial.staleness.histogram)
    ]
    return {
        "hybrid_trials": _table(HybridTrialPart, part.trials).drop(columns=["group_details", "server_details"]),
        "hybrid_groups": _placed(GroupPart, groups).drop(columns="lost"),
        "hybrid_lost_groups": _placed(LostGroupPart, [(place, lost) for place, group in groups for lost in group.lost]),
        "hybrid_servers": _placed(ServerPart, [(place, one) for place, own in trials for one in own.server_details]),
        "staleness": pd.DataFrame(late, columns=["trial", "staleness", "updates"]),
    }


def _placed(kind: type[BaseModel], rows: Sequence[tuple[dict[str, Any], BaseModel]]) -> pd.DataFrame:
    """A table whose first columns say what each row belongs to."""
    table = _table(kind, [part for _, part in rows])
    places = pd.DataFrame([place for place, _ in rows])
    names = [name for name in places if name not in table]
    return pd.concat([places[names], table], axis="columns")


def csv_text(table: pd.DataFrame) -> str:
    """A table as CSV. No cell is a formula, and none steers a terminal; numbers stay numbers.

    As `DataFrame.to_csv` writes it, in half of its time: a large run has a row for each of 200,000
    epochs.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(for_cell, table))
    writer.writerows(zip(*(_cells(column) for _, column in table.items()), strict=True))
    return text.getvalue()


def _cells(column: pd.Series) -> list[Any]:
    """The cells of a column; None for a missing value."""
    plain = column if is_numeric_dtype(column.dtype) else column.map(for_cell)
    values = plain.tolist()
    if not plain.hasnans:
        return values
    return [None if nothing else value for nothing, value in zip(plain.isna().tolist(), values, strict=True)]


def _table(kind: type[BaseModel], parts: Sequence[BaseModel]) -> pd.DataFrame:
    """A row for each part; the columns are there without any rows, too."""
    rows = [{key: _plain(value) for key, value in part.model_dump().items()} for part in parts]
    return pd.DataFrame(rows, columns=list(kind.model_fields))


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def _roofline(part: RooflinePart | None) -> dict[str, pd.DataFrame]:
    """Ceilings, measured operators, and trials next to their ceilings; none if nothing is known."""
    if part is None or not part.operators:
        return {}
    return {
        "ceilings": _table(CeilingPart, part.ceilings),
        "operators": _table(OperatorPart, part.operators),
        "trial_ceilings": _table(TrialCeilingPart, part.trials),
    }


def _replicas(report: Report) -> pd.DataFrame:
    """One column for the seconds of each phase."""
    rows = []
    for replica in report.replica_details:
        row = replica.model_dump(exclude={"phases_s"})
        rows.append({**row, **{f"{phase}_s": seconds for phase, seconds in replica.phases_s.items()}})
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(ReplicaPart.model_fields))


def epoch_table(data: RunData) -> pd.DataFrame:
    """Every completed epoch, on the primary's clock, including those too late to count."""
    names = (
        "trial",
        "epoch",
        "t_s",
        "images_trained",
        "images_evaluated",
        "correct",
        "correct_trained",
        "loss",
        "validation_loss",
        "learning_rate",
        "input_s",
        "exchange_s",
    )
    found = every_epoch(data.ledger)
    trials, numbers, trained, evaluated, *right = found.whole[:, TRIAL:].T
    # Whole numbers stay whole next to missing ones.
    known = [pd.arrays.IntegerArray(column.copy(), column == UNCLASSIFIED) for column in right]
    t_s = (found.column(TIME) - (data.start_ms or 0)) / 1000
    columns = (trials, numbers, t_s, trained, evaluated, *known, *found.measured.T)
    return pd.DataFrame(dict(zip(names, columns, strict=True)))
