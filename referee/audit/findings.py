"""Findings of an audit and its verdict, as a document and as a table."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.table import Table

from aiperf.cli.tables import make_table
from referee.audit.draws import power, power_line

Check = Literal["replay", "rows", "steps", "pace", "weights", "memory", "retrain"]
"""replay: the proposal is what history and seed give. rows: the evidence of the epoch is complete
and is that of its record. steps: the first steps of the trial, repeated. pace: the images per
second of the epoch are those of the repetition. weights: the kept weights of the trial, evaluated.
memory: they know training images at least as well as validation images. retrain: the first epochs
of the trial, repeated.
"""

FORGED = 0.3
"""The share of forged operations for which the power of an audit is printed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of one draw. A check that could not be done has not passed; `found` says why."""

    trial: int
    epoch: int
    check: Check
    expected: str
    found: str
    passed: bool
    done: bool = True
    """False if there was nothing to check it by, which speaks neither for nor against the run."""

    @property
    def result(self) -> str:
        """The result in capitals."""
        return "PASSED" if self.passed else "FAILED" if self.done else "NOT DONE"


@dataclass(frozen=True, slots=True)
class AuditResult:
    """All findings of an audit. `problems` are reasons to fail that are not of one draw."""

    head: str
    nonce: str
    draws: int
    """Draws from the hash of head and nonce; the epoch that decides the error comes on top."""
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Notes on the parts of the run that the audit did not look at."""

    @property
    def passed(self) -> bool:
        """True if something was checked and nothing is wrong."""
        return bool(self.findings) and not self.problems and all(finding.passed for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The verdict: passed, failed, or incomplete if checks were not done and none failed."""
        if self.passed:
            return "passed"
        wrong = self.problems or any(finding.done and not finding.passed for finding in self.findings)
        return "failed" if wrong or not self.findings else "incomplete"

    def document(self) -> dict[str, Any]:
        """The result for programs."""
        return {
            "verdict": self.verdict,
            "head": self.head,
            "nonce": self.nonce,
            "draws": [asdict(finding) for finding in self.findings],
            "problems": list(self.problems),
            "notes": list(self.notes),
            "power": {"draws": self.draws, "forged_share": FORGED, "probability": power(self.draws, FORGED)},
        }

    def table(self) -> Table:
        """The findings for people."""
        table = make_table("Audit", "trial", "epoch", "check", "result", "found", "expected", left=_TEXTS)
        for finding in self.findings:
            table.add_row(
                str(finding.trial),
                str(finding.epoch),
                finding.check,
                finding.result,
                finding.found[:300],
                finding.expected[:300],
            )
        return table

    def closing_lines(self) -> list[str]:
        """Problems, notes and power, and the verdict last."""
        return [
            *(f"problem: {problem}" for problem in self.problems),
            *(f"not checked: {note}" for note in self.notes),
            power_line(self.draws, FORGED),
            f"head: {self.head}",
            f"verdict: {self.verdict}",
        ]


_TEXTS = ("check", "result", "found", "expected")
