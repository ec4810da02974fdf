"""The results of workloads and of their models in words, for the terminal and the page."""

from collections.abc import Sequence

from aiperf.cli.units import count, number, si
from aiperf.config.duration import format_duration
from analysis.output.page.vocabulary import known
from analysis.report.model import Report
from analysis.report.workloads import InstancePart, ToQualityPart, WorkloadPart

NOT_REACHED = "not reached"

SHORT_S = 120

Shown = dict[str, str]
"""Texts by heading."""


def result_rows(report: Report) -> list[Shown]:
    """A row for each workload: medians of its models."""
    currency = currency_of(report)
    return [
        {
            "workload": part.workload,
            "framework": part.framework,
            "size": part.size,
            "reached": f"{part.reached} of {part.instances}",
            "target": target_of(part),
            "quality": number(part.quality),
            "in training": number(part.training_quality),
            "on test data": number(part.test_quality),
            "time to quality": time_of(part),
            "epochs": _plain(part.epochs_to_quality),
            "images/s": _plain(part.images_per_s),
            **_rates(part),
            **_prices(part, currency),
            "share of ceiling": known(part.share_of_ceiling),
        }
        for part in report.workloads
    ]


def headline(report: Report) -> list[tuple[str, str]]:
    """The time to quality of each workload; no number stands for several."""
    found = []
    for part in report.workloads:
        value, _, spread = time_of(part).partition(" (")
        reached = f"{part.reached} of {count(part.instances, 'model')} reached the target"
        found.append((value, f"time to quality of {part.workload}{f' ({spread}' if spread else ''}; {reached}"))
    return found or [("no workload", "")]


def model_rows(part: WorkloadPart, currency: str) -> list[Shown]:
    """A row for each model of a workload."""
    return [
        {
            "model": str(model.instance),
            "trials": ", ".join(str(trial.id) for trial in model.trials),
            "quality": number(model.quality),
            "in training": number(model.training_quality),
            "on test data": number(model.test_quality),
            "time to quality": _time(model),
            "epochs": _plain(model.epochs_to_quality),
            "images": _plain(model.images_to_quality),
            "operations": si(model.operations_to_quality, "OP"),
            **_rates(model),
            **_prices(model, currency),
        }
        for model in part.models
    ]


def currency_of(report: Report) -> str:
    """The currency of the run's prices; empty if it is not stated."""
    return str(report.configuration.get("price", {}).get("currency") or "")


def target_of(part: WorkloadPart) -> str:
    """The measures and values of a target."""
    sign = "at least" if part.higher else "at most"
    return " and ".join(f"{name.replace('_', ' ')} {sign} {value:g}" for name, value in part.targets.items()) or "-"


def time_of(part: WorkloadPart) -> str:
    """The median time to quality, with the shortest and the longest of several models."""
    least, most = part.time_to_quality_least_s, part.time_to_quality_most_s
    if part.time_to_quality_s is None or least is None or most is None:
        return NOT_REACHED
    spread = f" ({_duration(least)} to {_duration(most)})" if part.reached > 1 else ""
    return f"{_duration(part.time_to_quality_s)}{spread}"


def _duration(seconds: float) -> str:
    """A time to quality: short ones with tenths of a second."""
    return f"{seconds:.1f} s" if seconds < SHORT_S else format_duration(seconds)


def _time(model: InstancePart) -> str:
    return NOT_REACHED if model.time_to_quality_s is None else _duration(model.time_to_quality_s)


def _rates(part: WorkloadPart | InstancePart) -> Shown:
    rates = {"mean": part.ops, "peak": part.peak_ops, "sustained": part.sustained_ops, "valid": part.valid_ops}
    return {name: si(value, "OPS") for name, value in rates.items()}


def _prices(part: ToQualityPart, currency: str) -> Shown:
    """Energy and cost until the target; nothing is 0 for want of knowledge."""
    if part.time_to_quality_s is None:
        return {"energy": "-", "cost": "-"}
    joules, cost = part.energy_to_quality_j, part.cost_to_quality
    return {
        "energy": "not measured" if joules is None else si(joules, "J"),
        "cost": "not stated" if cost is None else f"{cost:.4g} {currency}".rstrip(),
    }


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}".removesuffix(".0")


RATES = ("images/s", "mean", "peak", "sustained", "valid", "share of ceiling")


def split(rows: Sequence[Shown], name: str) -> tuple[list[Shown], list[Shown]]:
    """Split rows into the cost of the target and the rates: two tables that fit a terminal."""
    to_quality = [{key: text for key, text in row.items() if key not in RATES} for row in rows]
    return to_quality, [{name: row[name], **{key: row[key] for key in RATES if key in row}} for row in rows]


def filled(rows: Sequence[Shown]) -> list[Shown]:
    """The rows without columns that are empty in all."""
    headings = [name for name in (rows[0] if rows else {}) if any(row[name] != "-" for row in rows)]
    return [{name: row[name] for name in headings} for row in rows]


LEFT: frozenset[str] = frozenset({"workload", "framework", "size", "target", "trials"})
"""Columns that are aligned to the left."""
