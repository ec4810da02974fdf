"""Acceptance of a run: its measures next to those of a baseline run, or to the limits of a file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from aiperf.config.toml_text import read_toml, toml_value
from aiperf.errors import ConfigError
from aiperf.untrusted.text import for_terminal, shown
from analysis.report.model import Report
from analysis.results.comparison import Measure, measures_of
from analysis.results.source import RunResult

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

    @property
    def failed(self) -> tuple[Criterion, ...]:
        """The criteria that the run does not meet."""
        return tuple(each for each in self.criteria if not each.accepted)

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "run": self.run, "baseline": self.baseline, "accepted": not self.failed,
            "criteria": [{**asdict(each), "accepted": each.accepted} for each in self.criteria],
        }  # fmt: skip


def accept_by_run(run: RunResult, baseline: RunResult, share: float = SHARE) -> Acceptance:
    """Compare a run with a baseline run, of whose measures `share` is accepted.

    Raises ConfigError if the baseline has no valid score: all would be accepted.
    """
    if baseline.scored.score_ops is None:
        raise ConfigError([f"{baseline.origin}: it has no valid score, so nothing can be compared with it"])
    criteria = tuple(_criteria(measures_of(baseline.scored, run.scored), share))
    return Acceptance(str(run.origin), str(baseline.origin), criteria)


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


Limits = Mapping[str, Mapping[str, float]]
"""Limits by measure, in the tables at_least and at_most."""


def accept_by_limits(run: RunResult, file: Path) -> Acceptance:
    """Compare a run with the limits of a file. Raises ConfigError with all problems of the file."""
    limits = read_limits(file, run.scored)
    values = {each.name: each.second for each in measures_of(run.scored, run.scored)}
    criteria = [
        Criterion(name, values[name], limit, kind) for kind, own in limits.items() for name, limit in own.items()
    ]
    return Acceptance(str(run.origin), str(file), tuple(criteria))


def read_limits(file: Path, report: Report) -> Limits:
    """The limits of a file, whose names are measures of the report. Raises ConfigError."""
    document, known = read_toml(file), {each.name for each in measures_of(report, report)}
    problems = [f"{file}: unknown table {shown(name)}; allowed are {AT_LEAST} and {AT_MOST}"
                for name in document if name not in (AT_LEAST, AT_MOST)]  # fmt: skip
    found: dict[str, dict[str, float]] = {}
    for kind in (AT_LEAST, AT_MOST):
        own = document.get(kind, {})
        if not isinstance(own, dict):
            problems.append(f"{file}: {kind} is no table of measures")
            continue
        problems += [problem for name, limit in own.items() if (problem := _problem(file, name, limit, known))]
        found[kind] = own
    if not problems and not any(found.values()):
        problems.append(f"{file}: it has no limits: name measures in [{AT_LEAST}] or [{AT_MOST}]")
    if problems:
        raise ConfigError(problems)
    return found


def _problem(file: Path, name: str, limit: object, known: set[str]) -> str | None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "aiperf compare RUN RUN shows the measures"
        return f"{file}: no measure of this run is named {shown(name)}; {hint}"
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not isfinite(limit):
        return f"{file}: the limit of {shown(name)} is not a number"
    return None


def limits_text(accepted: Acceptance) -> str:
    """The limits of an acceptance as a file of limits."""
    tables: dict[str, list[str]] = {AT_LEAST: [], AT_MOST: []}
    for each in accepted.criteria:
        tables[each.kind].append(f"{toml_value(each.measure)} = {toml_value(each.limit)}\n")
    return "\n".join(f"[{kind}]\n{''.join(lines)}" for kind, lines in tables.items() if lines)


def junit_text(accepted: Acceptance) -> str:
    """The criteria as JUnit's XML, a test case each, as continuous integration reads it."""
    failed = accepted.failed
    suite = ElementTree.Element("testsuite", name="aiperf accept", tests=str(len(accepted.criteria)),
                                failures=str(len(failed)), errors="0", skipped="0")  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("run", "baseline"):
        value = for_terminal(getattr(accepted, name))
        ElementTree.SubElement(properties, "property", name=name, value=value)
    for each in accepted.criteria:
        case = ElementTree.SubElement(
            suite, "testcase", classname="aiperf.accept", name=for_terminal(each.measure), time="0"
        )
        if not each.accepted:
            ElementTree.SubElement(case, "failure", message=each.text, type=each.kind)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"
