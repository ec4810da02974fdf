"""`aiperf check`: a run or a package against the rules, recomputed from its raw records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path

from aiperf.errors import RunDirectoryError
from aiperf.records.damage import Damage
from aiperf.run_directory.paths import RunPaths
from analysis.report.model import Report
from analysis.results.heads import NOT_ASKED, Arrival, Dating
from analysis.results.source import RunResult, opened_run, read_report_file, read_result

SAME = (
    "score_ops",
    "regulated_score_ops",
    "error",
    "duration_s",
    "operations_total",
    "timeline",
    "workloads",
    "hybrid",
    "sustained_ops",
    "status",
)
"""Fields that a stored report must have exactly as recomputed, if its version had them."""

NEAR = ("peak_ops",)
"""Fields that must be as recomputed but for the rounding of other machines."""

ROUNDING = 1e-9

LONG = frozenset({"timeline", "workloads", "hybrid"})
"""Fields that are too long to be shown."""


@dataclass(frozen=True)
class Compliance:
    """The result of a check.

    `differences`: fields of a stored report that are not as recomputed.
    """

    report: Report
    recomputed: bool
    differences: tuple[str, ...]
    damages: tuple[Damage, ...] = ()
    """Damages of the run's records; none are known of a bare report."""
    dating: Dating = NOT_ASKED
    """Judgement of the run's times by the heads that a referee received."""

    @property
    def valid(self) -> bool:
        """True if the result may be published, officially or not."""
        return self.report.verdict not in ("invalid", "running") and not self.differences

    @property
    def official(self) -> bool:
        """True if the records make an official result, and nothing contradicts them."""
        return self.recomputed and self.report.verdict == "official" and not (self.damages or self.differences)


def check_result(path: Path, heads: Sequence[Arrival] | None = None) -> Compliance:
    """Check a run directory, package or report. Raises RunDirectoryError if it is none of these.

    With `heads`, as they arrived at a referee, its times are judged.
    """
    if path.is_file():
        with opened_run(path) as folder:
            if folder == path:
                return Compliance(read_result(path).report, recomputed=False, differences=())
            return _check(read_result(folder, heads=heads), folder)
    return _check(read_result(path, heads=heads), path)


def _check(result: RunResult, folder: Path) -> Compliance:
    found = differences_to_stored(folder, result.report)
    return Compliance(result.report, True, tuple(found), result.damages, result.dating)


def differences_to_stored(folder: Path, fresh: Report) -> list[str]:
    """Fields of the report.json of a run that are not as recomputed; none if it has no report."""
    stored = RunPaths(folder).report_json
    if not stored.is_file():
        return []
    try:
        return differences(read_report_file(stored), fresh)
    except RunDirectoryError as error:
        return [str(error)]


def differences(stored: Report, fresh: Report) -> list[str]:
    """Fields of a stored report that are not as recomputed; none if it was of an unfinished run."""
    if stored.ended == "unfinished" and fresh != stored:
        return []
    found = []
    for name in (*SAME, *NEAR):
        was, is_now = getattr(stored, name), getattr(fresh, name)
        is_near = name in NEAR and None not in (was, is_now) and isclose(was, is_now, rel_tol=ROUNDING)
        if was != is_now and not is_near and name in stored.model_fields_set:
            shown = "differs" if name in LONG else f"is {was}, the records give {is_now}"
            found.append(f"report.json: {name} {shown}")
    return found
