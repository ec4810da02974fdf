"""A ranking over many runs: official ones in order; unofficial, invalid and unverified ones apart.

A run is ranked once, whichever of its copies are given. Several runs of one system are one row:
that of the median run, of an even number the lower of the two in the middle. A system is the signer
of its results and a name with its numbers of replicas, accelerators and ranks, its models of
devices, and its configuration. All but the signer can be copied, so results that nobody known has
signed are rows of their own: no submission changes the row of another one.

Energies are compared within one basis only: the same source, level and scope of the measurement.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal

import pandas as pd

from aiperf.config.sections.run import RunSection
from analysis.output.page.machine import Hardware, hardware_of
from analysis.report.estimates import IntervalPart
from analysis.report.model import Report
from analysis.results.copies import RANKED, contest, names_to_look_at, once
from analysis.results.source import RunResult

Order = Literal["score", "regulated", "accelerator", "energy"]

ORDERS: dict[Order, str] = {
    "score": "score_ops",
    "regulated": "regulated_score_ops",
    "accelerator": "ops_per_accelerator",
    "energy": "operations_per_joule",
}
"""Sort keys of a ranking, each with its column."""

MOST_SHARED = 0.05
"""Upper limit for the part of an interval that shares ranks, on each side, relative to the measure.

Few or unequal replicas make it as wide as the measure itself. A run that is known that badly would
share its rank with runs of many times its score.
"""

BASES = ("meters, Level 3", "meters, Level 2", "meters, Level 1", "meters", "sensors", "")
"""Beginnings of the words for what an energy is of (`EnergyPart.basis`), in order."""

COPIED = "copied"
"""Reason in place of a rule: the result has parts of one that somebody else has signed."""

STATUSES = {
    "official": "Official",
    "unofficial": "Unofficial",
    "invalid": "Invalid",
    "running": "Running: no result yet",
    "simulated": "Simulated: nothing was trained",
    "unverified": "Unverified: a report without its records proves nothing; rank its run directory or archive",
}
"""Headings of the parts of a ranking, in order."""


@dataclass(frozen=True, slots=True)
class Row:
    """One system: its median run. `rank` is for official runs.

    `source`: recomputed from records, or as reported. An invalid run has no score, whatever its
    report says. The interval (95 %) is that of the measure that the ranking is by.
    """

    rank: int | None
    system: str
    replicas: int
    accelerators: int
    ranks: int | None
    score_ops: float | None
    regulated_score_ops: float | None
    error: float
    ops_per_accelerator: float | None
    operations_per_joule: float | None
    status: str
    source: str
    origin: str
    reasons: str
    interval_low: float | None = None
    interval_high: float | None = None
    runs: int = 1
    """Runs of the system."""
    others: str = ""
    """The other runs of the system, separated by commas."""
    name: str = ""
    """`run.name`. Runs that kept the default one have the name of their hosts as `system`."""
    nodes: int | None = None
    processor: str = ""
    accelerator: str = ""
    """Models; empty if they are unknown."""
    started: str | None = None
    """Time of the release, of a rehearsal that of its making: ISO 8601, UTC."""
    run: str = ""
    """Name of the run directory, archive or file."""
    replicas_asked: int | None = None
    """Replicas that the configuration asks for; `replicas` took part."""
    signer: str | None = None
    """Signer of all runs of the system, by the file of allowed signers."""
    dated: bool = False
    """True if heads that a referee received date its times (`analysis.results.heads`)."""
    site: str = ""
    """Place of the system, as declared (`system.site`)."""
    network: str = ""
    """Network between its nodes: as declared, else as the nodes say."""
    cooling: str = ""
    """Its cooling, as declared."""
    contested: str = ""
    """Other results that have parts of this one, separated by commas."""
    energy_basis: str = ""
    """Source, level and scope of the energy; empty if it cannot be compared."""
    failures: int | None = None
    """Failures in the records (`CountsPart`); None in reports of earlier versions."""
    replicas_lost: int | None = None
    """Those of them that were replicas."""
    trials: int | None = None
    """All trials."""


@dataclass(frozen=True)
class Ranking:
    """Rows in order: official by rank, then unofficial, invalid and unverified ones.

    `problems`: paths that hold no result. `same`: results that are the same run as an earlier one,
    as pairs of both paths. `conflicts`: different results that claim parts of one run, and names
    that can be taken for others, in words.
    """

    order: Order
    rows: tuple[Row, ...]
    problems: tuple[str, ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    conflicts: tuple[str, ...] = ()

    @property
    def repeated(self) -> tuple[str, ...]:
        """The results that are copies of others, in sentences."""
        return tuple(f"{origin} is the same run as {kept}." for origin, kept in self.same)

    def with_status(self, status: str) -> tuple[Row, ...]:
        """The rows of one status."""
        return tuple(row for row in self.rows if row.status == status)

    def tables(self, status: str) -> Iterator[tuple[str, tuple[Row, ...]]]:
        """The rows of one status that can stand side by side; of energy with their basis."""
        rows = self.with_status(status)
        if self.order != "energy":
            yield "", rows
            return
        # Rows of one basis are neighbours: it comes before the measure in their order.
        for basis, own in groupby(rows, lambda row: row.energy_basis):
            yield basis or "no energy that can be compared", tuple(own)

    def frame(self) -> pd.DataFrame:
        """All rows as a table."""
        table = pd.DataFrame([asdict(row) for row in self.rows], columns=list(Row.__dataclass_fields__))
        return table.astype({"rank": "Int64"})


def rank(results: Iterable[RunResult], order: Order, problems: Iterable[str] = ()) -> Ranking:
    """Sort results. Official ones whose intervals overlap that of the first of a rank share it."""
    kept, same = once(results, [*STATUSES], lambda result: _shown(_row(result, order)))
    found = contest(kept)
    groups: dict[str, list[Row]] = {}
    for place, result in enumerate(kept):
        contested = ", ".join(sorted(str(kept[rival].origin) for rival in found.rivals.get(place, ())))
        row = replace(_row(result, order), contested=contested)
        if place in found.refused:
            row = replace(row, status="unofficial", reasons=", ".join(filter(None, [row.reasons, COPIED])))
        groups.setdefault(_system(result, order), []).append(row)
    rows = [_median(group, order) for group in groups.values()]
    rows.sort(
        key=lambda row: (
            [*STATUSES].index(row.status),
            _basis(row, order),
            -_key(row, order),
            row.system,
            row.origin,
        )
    )
    rivals = {str(kept[place].origin): first_rival(place, found.rivals) for place in range(len(kept))}
    conflicts = (*found.words, *names_to_look_at(kept))
    return Ranking(order, tuple(_ranked(rows, order, rivals)), tuple(problems), tuple(same), conflicts)


def _shown(row: Row) -> Row:
    """A row without what a copy of the run has otherwise: its place."""
    return replace(row, origin="", run="", system="")


def first_rival(place: int, rivals: dict[int, set[int]]) -> int:
    """The first of all results that a result contests with, also through others; itself if none."""
    found, ahead = {place}, [place]
    while ahead:
        new = rivals.get(ahead.pop(), set()) - found
        found |= new
        ahead += new
    return min(found)


def _basis(row: Row, order: Order) -> tuple[int, str]:
    """The place of what a row is compared within."""
    return (0, "") if order != "energy" else place_of_basis(row.energy_basis)


def place_of_basis(basis: str) -> tuple[int, str]:
    """The place of a basis of energies among others."""
    return next(place for place, start in enumerate(BASES) if basis.startswith(start)), basis


def _system(result: RunResult, order: Order) -> str:
    """A text that runs of one system have in common.

    Runs without a score, and those without a signer, stand for themselves.
    """
    report = result.report
    if result.status not in RANKED or result.signer is None:
        return f"{result.origin}"
    devices = sorted(part.name for part in report.physics.devices) if report.physics is not None else []
    size = (report.present, report.accelerators, report.ranks)
    parts = [result.status, result.signer, system_name(result), *size, devices, report.configuration]
    parts += [report.energy.basis] if order == "energy" else []
    return json.dumps(parts, sort_keys=True)


def system_name(result: RunResult, hardware: Hardware | None = None) -> str:
    """The name of the run, of its machine if that is the default one, or else of its directory."""
    if result.report.name != RunSection.model_fields["name"].default:
        return result.report.name
    found = hardware or hardware_of(result.report)
    return found.name or _folder(result.origin).name.removesuffix(".tar.gz").removesuffix(".json")


def _folder(origin: Path) -> Path:
    """The run directory of a result; an archive or a report elsewhere stands for itself."""
    origin = origin.absolute()
    return origin.parent.parent if (origin.parent.name, origin.name) == ("report", "report.json") else origin


def _median(group: Sequence[Row], order: Order) -> Row:
    rows = sorted(group, key=lambda row: (_key(row, order), row.origin))
    # Of an even number the lower one: a mean of two would be the result of no run.
    middle = rows[(len(rows) - 1) // 2]
    others = ", ".join(row.origin for row in rows if row is not middle)
    return replace(middle, runs=len(rows), others=others)


def _ranked(rows: Iterable[Row], order: Order, rivals: dict[str, int]) -> Iterable[Row]:
    """Competition ranking: rows are compared with the first of a rank, not one with the next.

    Each basis of an energy has ranks of its own, from 1.

    `rivals`: a number that results with parts of one run have in common. They are one for others.
    """
    first: Row | None = None
    above: set[int] = set()
    for row in rows:
        unknown = getattr(row, ORDERS[order]) is None
        if row.status != "official" or unknown:
            yield row
            continue
        if first is not None and _basis(first, order) != _basis(row, order):
            first, above = None, set()
        if first is None or not _level(first, row, order):
            # Compared with the first of a rank, since overlaps are not transitive: a chain of
            # neighbours could join the best with the worst.
            first = replace(row, rank=1 + len(above - {rivals[row.origin]}))
        above.add(rivals[row.origin])
        yield replace(row, rank=first.rank)


def _level(first: Row, row: Row, order: Order) -> bool:
    """True if a row that is not above the first cannot be distinguished from it."""
    if _key(first, order) == _key(row, order):
        return True
    low, high = first.interval_low, row.interval_high
    if low is None or high is None:
        return False
    low, high = max(low, _key(first, order) * (1 - MOST_SHARED)), min(high, _key(row, order) * (1 + MOST_SHARED))
    return high >= low


def _key(row: Row, order: Order) -> float:
    return float(getattr(row, ORDERS[order]) or 0.0)


def _row(result: RunResult, order: Order) -> Row:
    report = result.scored
    interval, hardware = _interval(report, order), hardware_of(report)
    described = {each.field: each.text for each in report.description}
    return Row(
        rank=None,
        system=system_name(result, hardware),
        replicas=report.present,
        replicas_asked=report.replicas,
        accelerators=report.accelerators,
        ranks=report.ranks,
        score_ops=report.score_ops,
        regulated_score_ops=report.regulated_score_ops,
        error=report.error,
        ops_per_accelerator=report.ops_per_accelerator,
        operations_per_joule=report.energy.comparable_per_joule,
        status=result.status,
        source="recomputed" if result.recomputed else "as reported",
        origin=str(result.origin),
        reasons=", ".join(
            [*(violation.rule for violation in report.violations), *["replay"] * bool(result.contradictions)]
        ),
        interval_low=interval[0],
        interval_high=interval[1],
        name=report.name,
        nodes=hardware.nodes,
        processor=hardware.processor,
        accelerator=hardware.accelerator,
        started=report.made,
        run=_folder(result.origin).name,
        signer=result.signer,
        dated=result.dating.dated,
        energy_basis=report.energy.basis,
        site=described.get("site", ""),
        network=described.get("host_networking", ""),
        cooling=described.get("cooling", ""),
        **(report.counts.model_dump() if report.counts is not None else {}),
    )


def _interval(report: Report, order: Order) -> tuple[float | None, float | None]:
    """The interval of the measure that the ranking is by; of energy none is known."""
    part: IntervalPart | None = None
    if order != "energy" and report.statistics is not None and report.score_ops is not None:
        part = report.statistics.regulated_score_ops if order == "regulated" else report.statistics.score_ops
    if part is None or part.low is None or part.high is None:
        return None, None
    share = report.accelerators if order == "accelerator" else 1
    return (part.low / share, part.high / share) if share else (None, None)
