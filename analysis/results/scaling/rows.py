"""Weak scaling (paper, figure 6) and strong scaling: score against accelerators, and efficiency.

A series without accelerators scales with its ranks.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from scipy.special import stdtrit

from analysis.output.page.machine import hardware_of
from analysis.report.model import Report
from analysis.report.phases import share_of_training
from analysis.results.comparison import Difference, differing_settings
from analysis.results.scaling.laws import LEVEL, Fit, Mode, SizedRate, fit_laws
from analysis.results.source import RunResult

OF_THE_SIZE = frozenset({"run.name", "run.replicas", "ssh.hosts", "replica.ranks", "replica.nodes"})
"""Settings that a series may vary: they make its runs larger, or name them."""

ENDED = ("completed", "early_stop")
"""States of trainings that have ended by themselves."""

MOST_LETTERS = 24
"""Upper limit for the characters of a value in a warning; hashes are longer."""


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """One run of a series.

    `ideal_ops` is the smallest run's score times the ratio of accelerators, or of ranks if a run of
    the series has no accelerators. An invalid run has neither score nor efficiency.
    `differing_settings`: settings other than the size in which the smallest run (`first`) and this
    one (`second`) differ. With any, the efficiency compares more than sizes. The interval (95 %) is
    that of the score.
    """

    replicas: int
    accelerators: int
    ranks: int | None
    score_ops: float | None
    regulated_score_ops: float | None
    error: float | None
    """None of scientific workloads."""
    ideal_ops: float | None
    efficiency: float | None
    status: str
    origin: str
    differing_settings: tuple[Difference, ...] = ()
    interval_low: float | None = None
    interval_high: float | None = None
    nodes: int | None = None
    processor: str = ""
    accelerator: str = ""
    """Models; empty if they are unknown."""
    started: str | None = None
    """Time of the release, of a rehearsal that of its making: ISO 8601, UTC."""
    standard_error: float | None = None
    """Standard error of the score."""
    ranks_per_replica: float | None = None
    batch_per_rank: int | None = None
    """Images a step and rank at the beginning: the search for hyperparameters may vary it."""
    batch: int | None = None
    """Images a step of all ranks of a replica."""
    models: int = 0
    """Trainings that have ended by themselves."""
    models_per_minute: float | None = None
    """`models` by the wall time of the run."""
    time_to_quality_s: float | None = None
    """Median of the models of a run with one scientific workload; None if it was not reached."""
    input_share: float | None = None
    """Share of the training of all replicas in which rank 0 waited for images."""
    exchange_share: float | None = None
    """Share of the training in all-reduce, of hybrid groups also in waits for servers; None if the
    framework cannot tell it from computing.
    """
    time_efficiency: float | None = None
    """Ideal time / time to quality; ideal: the smallest run's x its ranks a replica / own ones."""


def scaling_rows(results: Sequence[RunResult], mode: Mode = "weak") -> tuple[ScalingRow, ...]:
    """The series by size; efficiency = score / ideal. Runs without a score come last.

    The score is work by time, so the ideal is the same whether the work grows or stays.
    """
    usable = [result for result in results if result.scored.score_ops]
    measure = "accelerators" if all(result.report.accelerators for result in usable) else "ranks"
    usable = [result for result in usable if getattr(result.report, measure)]
    usable.sort(key=lambda result: (getattr(result.report, measure), result.report.present))
    smallest = usable[0].scored if usable else None
    rows = []
    for result in [*usable, *(result for result in results if result not in usable)]:
        report, ideal = result.scored, None
        if smallest is not None and result in usable:
            ideal = (smallest.score_ops or 0.0) / getattr(smallest, measure) * getattr(report, measure)
        rows.append(_row(result, smallest, ideal, mode))
    return tuple(rows)


def _row(result: RunResult, smallest: Report | None, ideal: float | None, mode: Mode) -> ScalingRow:
    report, hardware, work = result.scored, hardware_of(result.report), _work(result.scored)
    known = report.statistics.score_ops if report.statistics is not None and report.score_ops is not None else None
    return ScalingRow(
        report.present,
        report.accelerators,
        report.ranks,
        report.score_ops,
        report.regulated_score_ops,
        None if report.workloads else report.error,
        ideal,
        report.score_ops / ideal if ideal and report.score_ops else None,
        result.status,
        str(result.origin),
        _differences(smallest, report, mode),
        known.low if known is not None else None,
        known.high if known is not None else None,
        hardware.nodes,
        hardware.processor,
        hardware.accelerator,
        report.made,
        standard_error=_standard_error(report) if known is not None else None,
        time_efficiency=_time_efficiency(_work(smallest), work) if smallest is not None else None,
        **asdict(work),
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """The fields of a row about its work."""

    ranks_per_replica: float | None
    batch_per_rank: int | None
    batch: int | None
    models: int
    models_per_minute: float | None
    time_to_quality_s: float | None
    input_share: float | None
    exchange_share: float | None


def _work(report: Report) -> _Work:
    per_replica = report.ranks / report.present if report.ranks and report.present else None
    batch = _batch(report)
    done = sum(
        any(trial.state in ENDED for trial in model.trials) for part in report.workloads for model in part.models
    )
    done += sum(trial.state in ENDED for trial in report.trials)
    scored = report.score_ops is not None
    return _Work(
        per_replica,
        batch,
        round(batch * per_replica) if batch and per_replica else None,
        done,
        60 * done / report.duration_s if scored and report.duration_s else None,
        report.workloads[0].time_to_quality_s if scored and len(report.workloads) == 1 else None,
        share_of_training(report.replica_details, "input_s"),
        _exchange_share(report),
    )


def _exchange_share(report: Report) -> float | None:
    part = report.hybrid
    if part is None or part.group_share is None or part.waiting_share is None:
        return share_of_training(report.replica_details, "exchange_s")
    return part.group_share + part.waiting_share


def _batch(report: Report) -> int | None:
    """The batch of a rank: of the first training, else the setting."""
    first = report.workloads[0].hyperparameters if report.workloads else {}
    first = first or next((trial.hyperparameters for trial in report.trials if trial.hyperparameters), {})
    found = first.get("batch_size", report.configuration.get("training", {}).get("batch_size"))
    return found if isinstance(found, int) else None


def _time_efficiency(smallest: _Work, own: _Work) -> float | None:
    times, ranks = (
        (smallest.time_to_quality_s, own.time_to_quality_s),
        (smallest.ranks_per_replica, own.ranks_per_replica),
    )
    if not times[0] or not times[1] or not ranks[0] or not ranks[1]:
        return None
    return times[0] * ranks[0] / (times[1] * ranks[1])


def _standard_error(report: Report) -> float | None:
    """The score's standard error, from its interval (`analysis.report.statistics`)."""
    found = report.statistics
    if found is None or found.score_ops is None or found.score_ops.high is None or found.samples < 2:
        return None
    return (found.score_ops.high - found.score_ops.value) / float(stdtrit(found.samples - 1, LEVEL))


def _differences(smallest: Report | None, report: Report, mode: Mode) -> tuple[Difference, ...]:
    if smallest is None:
        return ()
    own = OF_THE_SIZE | ({"science.instances"} if mode == "weak" and _models_follow(smallest, report) else set())
    if _global_batch(smallest) is not None and _global_batch(smallest) == _global_batch(report):
        own |= {"training.batch_size"}
    return tuple(item for item in differing_settings(smallest, report) if item.key not in own)


def _global_batch(report: Report) -> float | None:
    """The stated batch of all ranks of a replica."""
    stated, ranks = report.configuration.get("training", {}).get("batch_size"), _work(report).ranks_per_replica
    return stated * ranks if stated and ranks else None


def _models_follow(smallest: Report, report: Report) -> bool:
    """True if both runs have the same models a replica."""
    one, other = (item.configuration.get("science", {}).get("instances", 1) for item in (smallest, report))
    return bool(one * report.replicas == other * smallest.replicas)


def fits_of(rows: Sequence[ScalingRow], mode: Mode) -> tuple[Fit, ...]:
    """The laws of the mode, fitted to the runs that differ in their size only."""
    measure = measure_of(rows)
    return fit_laws(
        mode,
        [
            SizedRate(getattr(row, measure), row.score_ops, row.standard_error)
            for row in rows
            if row.efficiency is not None and row.score_ops and not row.differing_settings
        ],
    )


def limit_in_words(rows: Sequence[ScalingRow], mode: Mode) -> str | None:
    """The reason why no law holds for the next size: it has more replicas than there are models.

    None if it has not, or if the series does not share models among its replicas.
    """
    fits, measure = fits_of(rows, mode), measure_of(rows)
    own = [row for row in rows if row.efficiency is not None and row.time_to_quality_s is not None]
    if mode != "strong" or not fits or not own or len({row.ranks_per_replica for row in own}) != 1:
        return None
    models, largest = max(row.models for row in own), own[-1]
    replicas = fits[0].next_size * largest.replicas / getattr(largest, measure)
    if replicas <= models:
        return None
    return (
        f"{fits[0].next_size} {measure} would be {replicas:.0f} replicas, but the work has {models} models: "
        "the others would have nothing to train, and the score would be lower than these laws expect"
    )


def scaling_document(rows: Sequence[ScalingRow], mode: Mode) -> dict[str, Any]:
    """The series for programs."""
    fits = [{name: value for name, value in asdict(fit).items() if name != "curve"} for fit in fits_of(rows, mode)]
    return {"mode": mode, "measure": measure_of(rows), "rows": [asdict(row) for row in rows], "fits": fits}


def differences_in_words(rows: Sequence[ScalingRow]) -> tuple[str, ...]:
    """One line for each run whose settings differ from those of the smallest run."""
    return tuple(
        f"{row.origin}: {', '.join(map(_in_words, row.differing_settings))}" for row in rows if row.differing_settings
    )


def _in_words(item: Difference) -> str:
    return f"{item.key} = {_short(item.second)} (smallest run: {_short(item.first)})"


def _short(value: str) -> str:
    return value if len(value) <= MOST_LETTERS else f"{value[:MOST_LETTERS]}..."


def scaling_frame(rows: Sequence[ScalingRow]) -> pd.DataFrame:
    """The series as a table."""
    keys = ["; ".join(item.key for item in row.differing_settings) for row in rows]
    table = pd.DataFrame([asdict(row) for row in rows], columns=list(ScalingRow.__dataclass_fields__))
    return table.assign(differing_settings=keys)


def measure_of(rows: Sequence[ScalingRow]) -> str:
    """The size that the series grows in: accelerators, or ranks if a run with a score has none."""
    return "accelerators" if all(row.accelerators for row in rows if row.efficiency is not None) else "ranks"
