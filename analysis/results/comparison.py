"""Two runs side by side: settings that differ, results, phases, measures that got worse.

A run is accepted if its measures are within the limits that follow from a baseline run.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, get_args

from aiperf.config.frameworks import TRAITS
from aiperf.config.settings import Size, WorkloadName
from aiperf.errors import UsageError
from analysis.output.page.machine import hardware_of
from analysis.report.intervals import NAMES
from analysis.report.model import Report
from analysis.report.phases import Wait, share_of_training
from analysis.results.source import RunResult

WORSE = 0.95
"""A measure below this ratio of the other run's is reported as worse."""


ONE, LEAST_SHARE = 0.5, 0.01
"""The least differences of counts, and of shares of the time, that matter."""

WAITING: Mapping[str, Wait] = {
    "waiting for images": "input_s",
    "all-reduce": "exchange_s",
    "waiting for servers": "servers_s",
}

OF_AUTOML = (("regulated_score_ops", "more"), ("error", "less"))
"""Results that no scientific run has, and their better direction, as below."""

OF_WORKLOADS = (
    ("reached", "more"),
    ("time_to_quality_s", "less"),
    ("epochs_to_quality", "less"),
    ("energy_to_quality_j", "less"),
    ("cost_to_quality", "less"),
    ("images_per_s", "more"),
    ("sustained_ops", "more"),
)
"""Measures of each scientific workload."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting, a version or a device that two runs do not share."""

    key: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of both runs. `better` is more, less or neither."""

    name: str
    first: float | None
    second: float | None
    better: str
    least: float = 0.0
    """The least difference that matters: ratios to smaller numbers say nothing."""

    @property
    def ratio(self) -> float | None:
        """Second / first; None if undefined, or if the first is 0 or too small to compare with."""
        if self.first is None or self.second is None or abs(self.first) <= self.least:
            return None
        return self.second / self.first if self.first else None

    @property
    def worse(self) -> bool:
        """True if the second is worse by more than 5 %, and by no less than matters."""
        if self.first is None or self.second is None or self.better == "neither":
            return False
        if self.ratio is not None and self.first > 0:
            beyond = self.ratio < WORSE if self.better == "more" else self.ratio > 1 / WORSE
            return beyond and abs(self.second - self.first) >= self.least
        loss = self.first - self.second if self.better == "more" else self.second - self.first
        return loss > 0 and loss >= self.least


@dataclass(frozen=True)
class ReportComparison:
    """Two results with the settings in which they differ, and all measures."""

    first: RunResult
    second: RunResult
    settings: tuple[Difference, ...]
    measures: tuple[Measure, ...]

    @property
    def slower(self) -> tuple[Measure, ...]:
        """The measures that are worse in the second run."""
        return tuple(measure for measure in self.measures if measure.worse)


def compare(first: RunResult, second: RunResult) -> ReportComparison:
    """Put two results next to each other. An invalid one has no score."""
    one, other = first.scored, second.scored
    differences = (*differing_machines(first.report, second.report), *differing_settings(one, other))
    return ReportComparison(first, second, differences, measures_of(one, other))


def differing_machines(first: Report, second: Report) -> tuple[Difference, ...]:
    """Models of processors and accelerators that two runs do not share, if both know them."""
    one, other = hardware_of(first), hardware_of(second)
    found = []
    if one.processor and other.processor and one.processor != other.processor:
        found.append(Difference("processor", one.processor, other.processor))
    if one.nodes and other.nodes and one.accelerator != other.accelerator:
        found.append(Difference("accelerator", one.accelerator or "none", other.accelerator or "none"))
    return tuple(found)


def differing_settings(first: Report, second: Report) -> Iterator[Difference]:
    """Settings, then versions of packages, that two runs do not share."""
    one, other = _flat(first), _flat(second)
    for key in sorted(one.keys() | other.keys()):
        if one.get(key) != other.get(key):
            yield Difference(key, json.dumps(one.get(key)), json.dumps(other.get(key)))
    for key in sorted(first.versions.keys() | second.versions.keys()):
        was, is_now = first.versions.get(key), second.versions.get(key)
        if was != is_now:
            yield Difference(f"version of {key}", str(was), str(is_now))


def _flat(report: Report) -> dict[str, object]:
    return {f"{section}.{name}": value for section, own in report.configuration.items() for name, value in own.items()}


def measures_of(first: Report, second: Report) -> tuple[Measure, ...]:
    """All measures of two runs; a measure of one of them alone has no value for the other."""
    return tuple(_measures(first, second))


def values_of(report: Report) -> dict[str, float | None]:
    """The values of all measures that any run can have; None: this run does not have it.

    A phase that did not occur took 0 of the time, unlike a wait that was not measured.
    """
    workloads = product(get_args(WorkloadName), TRAITS, get_args(Size), (name for name, _ in OF_WORKLOADS))
    others = [
        *(name for name, _ in OF_AUTOML),
        *map(_of_wait, WAITING),
        *(_of_workload(key, name) for *key, name in workloads),
    ]
    return {
        **dict.fromkeys(others),
        **{_of_phase(phase): _share(report, phase) for phase in NAMES},
        **{each.name: each.second for each in measures_of(report, report)},
    }


def _measures(first: Report, second: Report) -> Iterator[Measure]:
    automl = () if first.is_science and second.is_science else OF_AUTOML
    for name, better in (
        ("score_ops", "more"),
        *automl,
        ("peak_ops", "more"),
        ("sustained_ops", "more"),
        ("duration_s", "neither"),
        ("operations_total", "neither"),
        ("accelerators", "neither"),
        ("ranks", "neither"),
    ):
        yield Measure(name, getattr(first, name), getattr(second, name), better)
    for label, value in (
        ("score per accelerator (OPS)", lambda r: r.ops_per_accelerator),
        ("operations per second of training", lambda r: _per_second(r, r.operations_total, "train", "evaluate")),
        ("images trained per second of training", lambda r: _per_second(r, r.images_trained, "train")),
        ("busy fraction", _busy),
    ):
        yield Measure(label, value(first), value(second), "more")
    yield Measure("operations per joule", *_per_joule(first, second), "more")
    yield from _workloads(first, second)
    yield Measure("trials", len(first.trials), len(second.trials), "neither")
    yield Measure("failures", len(first.failures), len(second.failures), "less", ONE)
    for label, name in WAITING.items():
        was, is_now = (share_of_training(report.replica_details, name) for report in (first, second))
        if was is not None or is_now is not None:
            yield Measure(_of_wait(label), was, is_now, "less", LEAST_SHARE)
    for phase in dict.fromkeys([*first.phases_s, *second.phases_s]):
        better = "neither" if phase in ("train", "evaluate") else "less"
        yield Measure(_of_phase(phase), _share(first, phase), _share(second, phase), better, LEAST_SHARE)


def _per_joule(first: Report, second: Report) -> tuple[float | None, float | None]:
    """Those of the second run if its energy has the basis of the first one's."""
    one, other = first.energy, second.energy
    others = bool(one.basis) and one.basis != other.basis
    return one.comparable_per_joule, None if others else other.comparable_per_joule


def _workloads(first: Report, second: Report) -> Iterator[Measure]:
    """Compare the models of each workload; workloads of another framework or size are others."""
    one, other = ({(p.workload, p.framework, p.size): p for p in report.workloads} for report in (first, second))
    for key in dict.fromkeys([*one, *other]):
        for name, better in OF_WORKLOADS:
            was, is_now = (getattr(own.get(key), name, None) for own in (one, other))
            yield Measure(_of_workload(key, name), was, is_now, better)


def _of_wait(label: str) -> str:
    return f"share of {label} in training"


def _of_phase(phase: str) -> str:
    return f"share of {phase}"


def _of_workload(key: Sequence[str], name: str) -> str:
    return f"{' '.join(key)}: {name}"


def _per_second(report: Report, amount: int, *phases: str) -> float | None:
    seconds = sum(report.phases_s.get(phase, 0.0) for phase in phases)
    return amount / seconds if seconds else None


def _busy(report: Report) -> float | None:
    known = [replica.busy_fraction for replica in report.replica_details if replica.busy_fraction is not None]
    return sum(known) / len(known) if known else None


def _share(report: Report, phase: str) -> float | None:
    total = sum(report.phases_s.values())
    return report.phases_s.get(phase, 0.0) / total if total else None


# Acceptance of a run: its measures and their limits.

SHARE = 0.95
"""Share of the baseline that is accepted, unless another one is asked for."""

AT_LEAST, AT_MOST = "at_least", "at_most"
"""The tables of a file of limits."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """A measure of the run and its limit."""

    measure: str
    value: float | None
    """None: the run does not have it, so that it is not accepted."""
    limit: float
    kind: str
    """at_least or at_most."""
    reference: float | None = None
    """Value of the baseline run."""

    @property
    def accepted(self) -> bool:
        """True if the value is within the limit."""
        if self.value is None:
            return False
        return self.value >= self.limit if self.kind == AT_LEAST else self.value <= self.limit

    @property
    def text(self) -> str:
        """Value and limit in words."""
        value = "not measured" if self.value is None else f"{self.value:.6g}"
        return f"{value}, {self.kind.replace('_', ' ')} {self.limit:.6g} is accepted"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """All criteria of a run."""

    run: str
    baseline: str
    criteria: tuple[Criterion, ...]
    identity: str
    """Identity of the run, by which a store knows it."""
    started: str | None
    """UTC of its release."""
    machine: tuple[Difference, ...] = ()
    """Differences between the machines of the baseline (first) and of the run (second)."""

    @property
    def failed(self) -> tuple[Criterion, ...]:
        """The criteria that the run does not meet."""
        return tuple(each for each in self.criteria if not each.accepted)

    def document(self, at: str) -> dict[str, Any]:
        """The same as JSON; `at` is the UTC of the acceptance."""
        return {
            "at": at,
            "run": self.run,
            "identity": self.identity,
            "started": self.started,
            "baseline": self.baseline,
            "accepted": not self.failed,
            "machine": [asdict(each) for each in self.machine],
            "criteria": [{**asdict(each), "accepted": each.accepted} for each in self.criteria],
        }


def accept_by_run(run: RunResult, baseline: RunResult, share: float = SHARE) -> Acceptance:
    """Compare a run with a baseline run, of whose measures `share` is accepted.

    Raises UsageError if the baseline has no valid score: all would be accepted.
    """
    if baseline.scored.score_ops is None:
        why = f"aiperf check {shlex.quote(str(baseline.origin))}"
        raise UsageError(f"{baseline.origin} has no valid score, so nothing can be compared with it; see why: {why}")
    criteria = tuple(_criteria(measures_of(baseline.scored, run.scored), share))
    machine = differing_machines(baseline.report, run.report)
    return Acceptance(str(run.origin), str(baseline.origin), criteria, run.key, run.report.made, machine)


def _criteria(measures: tuple[Measure, ...], share: float) -> Iterator[Criterion]:
    for each in measures:
        if each.better == "neither" or each.first is None:
            continue
        if each.better == "more":
            limit, kind = min(share * each.first, each.first - each.least), AT_LEAST
        else:
            # Small counts and shares differ by chance: `least` matters, whatever the ratio.
            limit, kind = max(each.first / share, each.first + each.least), AT_MOST
        yield Criterion(each.name, each.second, limit, kind, each.first)
