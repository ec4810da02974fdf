"""The history of systems over time: results by date and version, and what got worse.

A value is compared with the median of the (at most) five runs of the series before it. The median
has an interval: 5 % to each side, or 1.96 standard deviations of those runs if that is more. The
standard deviation is 1.4826 x their median absolute deviation, which one odd run does not widen.
Shares of time get at least one percentage point. A value that is worse than the interval is a
regression. Values that get better never are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from aiperf.cli.units import count
from aiperf.config.duration import format_duration
from analysis.output.systems import framework
from analysis.report.model import Report
from analysis.results.source import RunResult

WINDOW = 5
"""Runs before a run that it is compared with: older ones say little about the present."""

MARGIN, POINT = 0.05, 0.01
"""Least half-width of an interval: relative, and for shares of time absolute."""

SPREAD = 1.96 * 1.4826
"""Half-width of an interval in median absolute deviations, of normally distributed values."""

MORE = ("score_ops", "regulated_score_ops", "images_per_second", "initial_ops")
"""Measures that are better if they are higher."""

BUSY = frozenset({"train", "evaluate"})
"""Phases whose share of time is not a loss."""

COLUMNS = ("system", "started", "version", "framework", "status", *MORE, "error")


@dataclass(frozen=True, slots=True)
class Regression:
    """A measure that is worse than the interval of the median of the runs before."""

    measure: str
    value: float
    median: float
    bound: float
    """The end of the interval that the value is beyond."""
    runs: int
    """Runs that the median is of."""


@dataclass(frozen=True)
class TrendRow:
    """One run of a series. Measures that are not known, as those of invalid runs, are None."""

    system: str
    arrangement: str
    """Properties that the runs of a series share, in words: runs of one name may be in several."""
    started: str | None
    version: str
    framework: str
    status: str
    origin: str
    error: float
    measures: Mapping[str, float | None]
    phases: Mapping[str, float]
    """Share of the replicas' time by phase."""
    regressions: tuple[Regression, ...] = ()

    def flat(self) -> dict[str, Any]:
        """The row with one value a column."""
        return {
            **{name: getattr(self, name) for name in ("system", "started", "version", "framework", "status")},
            **self.measures,
            "error": self.error,
            **{f"share_{phase}": share for phase, share in self.phases.items()},
            "regressions": ", ".join(item.measure for item in self.regressions),
            "origin": self.origin,
        }


def trend(results: Iterable[RunResult]) -> tuple[tuple[TrendRow, ...], ...]:
    """A series for each system, its runs in order of time; copies of a run count once.

    A system is a name with its replicas, accelerators, ranks, devices, data set, planned duration,
    trainer and input. Runs that never started have no date and come first.
    """
    series: dict[str, list[RunResult]] = {}
    known: set[str] = set()
    for result in sorted(results, key=lambda result: result.report.started or ""):
        if result.identity is None or result.identity not in known:
            series.setdefault(_system(result.report), []).append(result)
        known |= {result.identity} if result.identity is not None else set()
    return tuple(tuple(_judged([_row(result) for result in runs])) for runs in series.values())


def trend_frame(series: Iterable[Sequence[TrendRow]]) -> pd.DataFrame:
    """All series as one table."""
    rows = [row.flat() for runs in series for row in runs]
    phases = dict.fromkeys(name for row in rows for name in row if name.startswith("share_"))
    return pd.DataFrame(rows, columns=[*COLUMNS, *phases, "regressions", "origin"])


def _system(report: Report) -> str:
    """A text that the runs of a series have in common."""
    settings = report.configuration
    work = [settings["run"].get("dataset"), settings["run"].get("duration")]
    work += [settings["training"].get(name) for name in ("trainer", "input")]
    devices = sorted(part.name for part in report.physics.devices) if report.physics is not None else []
    return json.dumps([report.name, report.replicas, report.accelerators, report.ranks, devices, *work])


def _arrangement(report: Report) -> str:
    settings = report.configuration
    run, training = settings["run"], settings["training"]
    devices = count(report.accelerators, "accelerator") if report.accelerators else count(report.ranks or 0, "rank")
    work = [run.get("dataset"), *(f"{name} {training.get(name)}" for name in ("trainer", "input"))]
    duration = [format_duration(run["duration"])] if run.get("duration") else []
    return ", ".join([count(report.replicas, "replica"), devices, *map(str, filter(None, work)), *duration])


def _row(result: RunResult) -> TrendRow:
    report = result.scored
    valid = report.score_ops is not None
    trained_s = report.phases_s.get("train", 0.0)
    statistics = report.statistics
    total_s = sum(report.phases_s.values())
    return TrendRow(
        system=report.name,
        arrangement=_arrangement(report),
        started=report.started,
        version=_version(report),
        framework=framework(report),
        status=result.status,
        origin=str(result.origin),
        error=report.error,
        measures={
            "score_ops": report.score_ops,
            "regulated_score_ops": report.regulated_score_ops,
            "images_per_second": report.images_trained / trained_s if valid and trained_s else None,
            "initial_ops": statistics.initial_ops if valid and statistics is not None else None,
        },
        phases={phase: seconds / total_s for phase, seconds in report.phases_s.items()} if valid and total_s else {},
    )


def _version(report: Report) -> str:
    """The version of aiperf with its revision in git, and a plus sign if the source differs."""
    versions = report.versions
    revision = (versions.get("git_revision") or "")[:8]
    changed = "+" if versions.get("git_dirty") == "true" else ""
    return f"{versions.get('aiperf') or '-'} {revision}{changed}".rstrip()


def _judged(rows: Sequence[TrendRow]) -> Iterable[TrendRow]:
    """The rows with their regressions. Runs without a score are not compared."""
    before: list[TrendRow] = []
    for row in rows:
        if row.measures["score_ops"] is None:
            yield row
            continue
        yield TrendRow(**{**vars(row), "regressions": tuple(_regressions(row, before[-WINDOW:]))})
        before.append(row)


def _regressions(row: TrendRow, before: Sequence[TrendRow]) -> Iterable[Regression]:
    for name in MORE:
        value = row.measures[name]
        found = [earlier for run in before if (earlier := run.measures[name]) is not None]
        if value is not None and found:
            middle = median(found)
            # A series of few runs may have no spread at all: the margin keeps noise from being a
            # regression.
            bound = middle - max(MARGIN * middle, _spread(found, middle))
            if value < bound:
                yield Regression(name, value, middle, bound, len(found))
    for phase, share in row.phases.items():
        shares = [run.phases.get(phase, 0.0) for run in before]
        if phase not in BUSY and shares:
            middle = median(shares)
            bound = middle + max(POINT, MARGIN * middle, _spread(shares, middle))
            if share > bound:
                yield Regression(f"share_{phase}", share, middle, bound, len(shares))


def _spread(values: Sequence[float], middle: float) -> float:
    return SPREAD * median(abs(value - middle) for value in values)
