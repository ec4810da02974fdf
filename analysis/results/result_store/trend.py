"""Series of results over time, and what got worse in them.

A value is compared with the median of earlier ones of its series. The median has an interval: 5 %
to each side, or 1.96 standard deviations of those values if that is more. The standard deviation is
1.4826 x their median absolute deviation, which one odd result does not widen. Shares of time get at
least one percentage point. A value that is worse than the interval is a regression. Values that get
better never are.

Each result is compared with the (at most) five before it, which finds a sudden loss. The latest
results of a series are compared with its first ones, which finds a slow one, too. Their deviation
is that of the differences of neighbours / square root of 2, which a drift does not widen.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Any, Literal

import msgspec
import pandas as pd
from msgspec import Struct

from aiperf.cli.units import count
from aiperf.screening.measures import MEASURES
from analysis.results.result_store.facts import LOST, SHARES, AcceptanceFacts, Facts, RunFacts, ScreeningFacts

WINDOW = 5
"""Results before one that it is compared with: older ones say little about the present."""

MARGIN, POINT = 0.05, 0.01
"""Least half-width of an interval: relative, and for shares of time absolute."""

SPREAD = 1.96 * 1.4826
"""Half-width of an interval in median absolute deviations, of normally distributed values."""

OF_RUNS = ("score_ops", "regulated_score_ops", "images_per_second", "initial_ops", "operations_per_joule")
"""Measures of runs that are better if they are higher."""

PER_JOULE = "operations_per_joule"
"""The measure that is compared within one basis of the energy."""

BUSY = frozenset({"share_train", "share_evaluate"})
"""Shares of time that are not a loss."""

COLUMNS = (
    *("system", "arrangement", "made", "version", "framework", "status", "accepted"),
    *(*OF_RUNS, "error", "energy_basis"),
)

By = Literal["system", "node"]


class Change(Struct, frozen=True, kw_only=True):
    """A measure next to the median of earlier results."""

    measure: str
    """Name of the measure."""
    value: float
    """The value, of several results their median."""
    results: int
    """Results that the value is of."""
    median: float
    """Median of the earlier results."""
    earlier: int
    """Results that the median is of."""
    change: float | None
    """value / median - 1, of a share of time value - median; null if the median is 0."""
    limit: float
    """End of the median's interval on the side that is worse."""
    worse: bool
    """True if the value is beyond the limit."""


class TrendRow(Struct, frozen=True, kw_only=True):
    """One result of a series."""

    made: str | None
    """UTC of the release of a run, or of the end of a screening; null: the run never started."""
    version: str
    """Version of AIPerf with its git revision."""
    framework: str
    """Framework of a run with its version; empty for screenings."""
    status: str
    """Of a run as in rank; of a device good, bad or lost; of a screening its bad nodes."""
    accepted: bool | None
    """Result of the run's newest acceptance; null without one."""
    origin: str
    """Path of the result."""
    values: dict[str, float]
    """Measures that are known; none of an invalid run."""
    energy_basis: str = ""
    """Source, scope and level of the energy of a run; empty if it has no operations per joule."""
    regressions: tuple[Change, ...] = ()
    """Measures that are worse than in the results before."""


class Series(Struct, frozen=True, kw_only=True):
    """The results of one system, or of one device of a node, in order of time."""

    kind: Literal["run", "screening"]
    """run, or screening."""
    system: str
    """Name of the system, or of the node."""
    arrangement: str
    """Properties that the results share, in words: results of one name may be in several series."""
    rows: tuple[TrendRow, ...]
    """Results, the oldest first."""
    changes: tuple[Change, ...]
    """Each measure of the latest results next to that of the first ones."""

    @property
    def worse(self) -> tuple[Change, ...]:
        """The measures that are worse than at first."""
        return tuple(change for change in self.changes if change.worse)


class TrendDocument(Struct, frozen=True, kw_only=True):
    """The document that `aiperf trend --format json` prints."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    by: By
    """system: a series for each system; node: one for each device of each node."""
    since: str | None
    """UTC from which on results are shown and are the latest ones; null: all are shown."""
    series: tuple[Series, ...]
    """The series, those that got worse first."""
    problems: tuple[str, ...]
    """Paths that hold no result, with the reason."""


def trend(facts: Iterable[Facts], by: By = "system", since: str | None = None) -> tuple[Series, ...]:
    """The series of results, those that got worse first; copies of a result count once.

    Runs of a system share its name, replicas, accelerators, ranks, devices, data set, planned
    duration, trainer and input; screenings the name, the kind of device and whether they were
    quick. By node there are screenings alone. With `since`, results from then on are shown, and
    compared with all before. Runs that never started have no date and come first.
    """
    first: dict[str, Facts] = {}
    for item in facts:
        first.setdefault(item.row.identity, item)
    found = sorted(first.values(), key=_made)
    parts = _nodes(found) if by == "node" else {**_runs(found), **_kinds(found)}
    series = [_judged(key, rows, since) for key, rows in parts.items()]
    shown = [each for each in series if each.rows]
    return tuple(sorted(shown, key=lambda each: (not each.worse, each.kind)))


def trend_frame(series: Iterable[Series]) -> pd.DataFrame:
    """All series as one table, a row for each result."""
    rows = [
        {
            "system": each.system,
            "arrangement": each.arrangement,
            **{name: getattr(row, name) for name in ("made", "version", "framework", "status", "accepted")},
            **row.values,
            "energy_basis": row.energy_basis,
            "regressions": ", ".join(item.measure for item in row.regressions),
            "origin": row.origin,
        }
        for each in series
        for row in each.rows
    ]
    known = {name for row in rows for name in row}
    further = [name for name in (*SHARES, *MEASURES) if name in known]
    return pd.DataFrame(rows, columns=[*COLUMNS, *further, "regressions", "origin"])


# Series of each kind, by what their results have in common.


Key = tuple[Literal["run", "screening"], str, str, str]
"""Kind, system, arrangement, and whatever else distinguishes a series."""


def _made(item: Facts) -> str:
    return item.row.made or ""


def _runs(found: Sequence[Facts]) -> dict[Key, list[TrendRow]]:
    # Those of a run share `made`, its release. Those of earlier versions without `at` come first,
    # in the order in which they were given or added to a store.
    acceptances = [row for item in found if isinstance(row := item.row, AcceptanceFacts)]
    accepted = {row.run: row.accepted for row in sorted(acceptances, key=lambda row: row.at or "")}
    parts: dict[Key, list[TrendRow]] = {}
    for item in found:
        row = item.row
        if isinstance(row, RunFacts):
            values = {name: value for name in (*OF_RUNS, *SHARES) if (value := getattr(row, name)) is not None}
            if not row.energy_basis:  # also of a store of an earlier AIPerf
                values.pop(PER_JOULE, None)
            parts.setdefault(("run", row.system, row.arrangement, row.series), []).append(
                TrendRow(
                    made=row.made,
                    version=row.version,
                    framework=row.framework,
                    status=row.status,
                    accepted=accepted.get(row.identity),
                    origin=row.origin,
                    values={**values, "error": row.error},
                    energy_basis=(row.energy_basis or "") if PER_JOULE in values else "",
                )
            )
    return parts


def _kinds(found: Sequence[Facts]) -> dict[Key, list[TrendRow]]:
    """A series for each kind of device: medians over all devices of a screening."""
    parts: dict[Key, list[TrendRow]] = {}
    for item in found:
        row = item.row
        if not isinstance(row, ScreeningFacts):
            continue
        kinds = defaultdict(list)
        for device in item.devices:
            if device.status != LOST:
                kinds[device.kind].append(_rates(device))
        for kind, rates in kinds.items():
            names = [name for name in MEASURES if any(name in own for own in rates)]
            values = {name: median(own[name] for own in rates if name in own) for name in names}
            key: Key = ("screening", row.system or kind, f"{kind}, {_screening(row)}, median of all devices", kind)
            parts.setdefault(key, []).append(_screened(row, count(row.bad_nodes, "bad node"), values))
    return parts


def _nodes(found: Sequence[Facts]) -> dict[Key, list[TrendRow]]:
    """A series for each device of each node; a screening in which the node was lost is in all."""
    parts: dict[Key, list[TrendRow]] = {}
    own: dict[tuple[str, str, bool], set[Key]] = defaultdict(set)
    lost: list[tuple[ScreeningFacts, str]] = []
    for item in found:
        row = item.row
        if not isinstance(row, ScreeningFacts):
            continue
        for device in item.devices:
            if device.status == LOST:
                lost.append((row, device.node))
                continue
            key: Key = ("screening", device.node, f"{device.device} ({device.kind}), {_screening(row)}", row.system)
            own[device.node, row.system, row.quick].add(key)
            parts.setdefault(key, []).append(_screened(row, device.status, _rates(device)))
    # Not in the loop above: only behind it are all devices of a node known.
    for row, node in lost:
        missing: Key = ("screening", node, f"no device answered, {_screening(row)}", row.system)
        for key in own.get((node, row.system, row.quick)) or [missing]:
            parts.setdefault(key, []).append(_screened(row, LOST, {}))
    return {key: sorted(rows, key=lambda each: each.made or "") for key, rows in parts.items()}


def _rates(device: Any) -> dict[str, float]:
    return {name: value for name in MEASURES if (value := getattr(device, name)) is not None}


def _screening(row: ScreeningFacts) -> str:
    return "quick screening" if row.quick else "screening"


def _screened(row: ScreeningFacts, status: str, values: dict[str, float]) -> TrendRow:
    return TrendRow(
        made=row.made, version=row.version, framework="", status=status, accepted=None, origin=row.origin, values=values
    )


# Judgement.


def _judged(key: Key, rows: Sequence[TrendRow], since: str | None) -> Series:
    """The series with its regressions; runs without a score are neither judged nor compared."""
    kind, system, arrangement, _ = key
    judged, before = list[TrendRow](), list[TrendRow]()
    for row in rows:
        if not _is_measured(row):
            judged.append(row)
            continue
        changes = _changes([row], before[-WINDOW:], _deviation)
        judged.append(msgspec.structs.replace(row, regressions=tuple(each for each in changes if each.worse)))
        before.append(row)
    if since is not None:
        first, latest = ([row for row in before if ((row.made or "") >= since) == late] for late in (False, True))
    else:
        # At most half of them each, so that no result is on both sides of the comparison.
        size = min(WINDOW, len(before) // 2)
        first, latest = before[:size], before[len(before) - size :]
    return Series(
        kind=kind,
        system=system,
        arrangement=arrangement,
        rows=tuple(row for row in judged if since is None or (row.made or "") >= since),
        changes=tuple(_changes(latest, first, _deviation_of_neighbours)),
    )


def _is_measured(row: TrendRow) -> bool:
    return any(name != "error" for name in row.values)


Deviation = Callable[[Sequence[float], Sequence[float]], float]
"""Median absolute deviation of the noise in earlier values and those after them."""


def _deviation(earlier: Sequence[float], _: Sequence[float]) -> float:
    return _median_deviation(earlier)


def _deviation_of_neighbours(earlier: Sequence[float], values: Sequence[float]) -> float:
    return _median_deviation([after - before for before, after in pairwise([*earlier, *values])]) / sqrt(2)


def _median_deviation(values: Sequence[float]) -> float:
    middle = median(values)
    return median(abs(value - middle) for value in values)


def _changes(latest: Sequence[TrendRow], earlier: Sequence[TrendRow], deviation: Deviation) -> Iterator[Change]:
    """Each measure that both have, the latest results as their median."""
    for name in dict.fromkeys(name for row in latest for name in row.values):
        basis = next((row.energy_basis for row in reversed(latest) if name in row.values), "")
        values, before = _known(name, latest, basis), _known(name, earlier, basis)
        if before and values and name not in BUSY and name != "error":
            yield _change(name, values, before, SPREAD * deviation(before, values))


def _known(name: str, rows: Sequence[TrendRow], basis: str) -> list[float]:
    """The values of a measure; operations per joule of one basis of the energy."""
    return [row.values[name] for row in rows if name in row.values and (name != PER_JOULE or row.energy_basis == basis)]


def _change(name: str, values: Sequence[float], earlier: Sequence[float], spread: float) -> Change:
    """Values next to earlier ones. Shares of time are better if lower, all others if higher."""
    value, middle = median(values), median(earlier)
    # Few results may have no spread at all: the margin keeps noise from being a regression.
    width = max(MARGIN * middle, spread)
    change: float | None
    if name in SHARES:
        limit, change = middle + max(POINT, width), value - middle
        worse = value > limit
    else:
        limit, change = middle - width, value / middle - 1 if middle else None
        worse = value < limit
    return Change(
        measure=name,
        value=value,
        results=len(values),
        median=middle,
        earlier=len(earlier),
        change=change,
        limit=limit,
        worse=worse,
    )
