"""The systems of a list: what they are, and their results over all editions."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.output.systems import mlperf_system
from analysis.results.ranking import Row
from analysis.results.science import WorkloadRow
from referee.listing.editions import Edition
from referee.listing.judging import Listed
from referee.listing.submissions import read_description

HIDDEN = frozenset({"page", "run", "source"})
"""Fields of a row that say where the program of the list found it."""

MOST_SLUG, MOST_TEXT = 40, 500

PEOPLE = frozenset({"site", "vendor", "year", "price"})
"""The fields of a system that people fill in and that MLPerf does not have."""


@dataclass(frozen=True)
class System:
    """One system: its archives in the order of editions, and its rows by edition."""

    id: str
    """Name of its page."""
    name: str
    signer: str
    is_science: bool
    listed: tuple[Listed, ...]
    history: tuple[Mapping[str, Any], ...]

    @property
    def latest(self) -> Listed:
        """Its latest official archive, or else any; copies and withdrawn ones last."""
        places = {row["origin"] for row in self.history}
        counting = [each for each in self.listed if str(each.result.origin) in places]
        return max(
            counting or self.listed, key=lambda each: (each.result.status == "official", each.submission.edition)
        )

    @property
    def best_rank(self) -> int | None:
        """Its best rank in any edition."""
        return min((row["rank"] for row in self.history if row["rank"] is not None), default=None)


def system_id(listed: Listed) -> str:
    """The name of a system's page: readable, and different for different systems."""
    _, name, _ = listed.system
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:MOST_SLUG].strip("-") or "system"
    return f"{slug}-{hashlib.sha256(json.dumps(listed.system).encode()).hexdigest()[:10]}"


def row_data(row: Row | WorkloadRow, listed: Listed) -> dict[str, Any]:
    """A row of a list as data: all its numbers, and the archive that they come from."""
    own = {name: value for name, value in asdict(row).items() if name not in HIDDEN}
    return {**own, "signer": listed.result.signer, "sha256": listed.submission.digest, "system_id": system_id(listed)}


def rows_of(edition: Edition, listed: Mapping[str, Listed]) -> Iterable[tuple[Listed, dict[str, Any]]]:
    """Every row of an edition by score or time to quality, with its archive."""
    rows: tuple[Row | WorkloadRow, ...] = (*edition.rankings["score"].rows, *edition.workloads)
    for row in rows:
        own = listed[row.origin]
        yield own, row_data(row, own)


def systems_of(listed: Sequence[Listed], editions: Sequence[Edition]) -> list[System]:
    """All systems by name."""
    by_place = {str(each.result.origin): each for each in listed}
    own: dict[str, list[Listed]] = {}
    for each in listed:
        own.setdefault(system_id(each), []).append(each)
    history: dict[str, list[dict[str, Any]]] = {name: [] for name in own}
    for edition in editions:
        for each, row in rows_of(edition, by_place):
            history[system_id(each)].append({"edition": edition.name, **row})
    systems = [
        System(
            name,
            archives[0].system[1],
            archives[0].result.signer or "",
            archives[0].result.report.is_science,
            tuple(archives),
            tuple(history[name]),
        )
        for name, archives in own.items()
    ]
    return sorted(systems, key=lambda system: (system.name.casefold(), system.id))


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a system's description, as recorded by the run and as its submitter says."""

    name: str
    recorded: str
    told: str


def description_of(listed: Listed) -> tuple[list[Field], str]:
    """The description of a system, and why the submitter's part cannot be read.

    Fields are those of MLPerf's system descriptions, after `PEOPLE`. What the run has recorded
    comes from its records; the submitter's words are shown where the records have none or others.
    """
    told, problem = read_description(listed.submission)
    report, fields = listed.result.report, []
    people = {each.words: each.text for each in report.description if each.field in PEOPLE}
    for name, value in {**people, **mlperf_system(report)}.items():
        recorded, own = _text(value), _text(told.get(name, ""))
        if recorded or own:
            fields.append(Field(name.replace("_", " "), recorded, own if own != recorded else ""))
    return fields, problem


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text}" for name, text in value.items())[:MOST_TEXT]
    return "" if value is None else str(value)[:MOST_TEXT]
