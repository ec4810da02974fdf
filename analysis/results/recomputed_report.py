"""A stored report against one computed again from the raw records: a part of `aiperf check`."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path

from aiperf.errors import RunDirectoryError
from aiperf.records.damage import Damage
from aiperf.run_directory.paths import RunPaths
from aiperf.source_code import source_hash
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

FACTS = (
    "name",
    "verdict",
    "simulated",
    "ended",
    "started",
    "replicas",
    "took_part",
    "accelerators",
    "ranks",
    "images_trained",
    "images_evaluated",
    "configuration",
    "versions",
)
"""Further fields that a report by the run's own program must have exactly as recomputed."""

LATER = frozenset({"state"})
"""Fields that say what was when the report was made."""

ROUNDING, ROUNDING_OF_DETAILS = 1e-9, 1e-6

LONG = frozenset({"timeline", "workloads", "hybrid", "configuration", "versions"})
"""Fields that are too long to be shown."""


@dataclass(frozen=True)
class Compliance:
    """The result of a check.

    `differences`: fields of a stored report that are not as recomputed.
    """

    report: Report
    recomputed: bool
    differences: tuple[str, ...]
    details: tuple[str, ...] = ()
    """Other fields of a stored report that are not as recomputed: late samples change some of them,
    and so does an editor. Nothing is made from them."""
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
    found, details = differences_to_stored(folder, result.report)
    return Compliance(result.report, True, tuple(found), tuple(details), result.damages, result.dating)


def differences_to_stored(folder: Path, fresh: Report) -> tuple[list[str], list[str]]:
    """Fields of the report.json of a run that are not as recomputed, in words: those that make it
    invalid, and the names of others. None if it has no report, or one of before the run's end."""
    stored = RunPaths(folder).report_json
    if not stored.is_file():
        return [], []
    try:
        report = read_report_file(stored)
    except RunDirectoryError as error:
        return [str(error)], []
    if report.ended == "unfinished" and fresh != report:
        return [], []
    # Another program may count or word what is no result otherwise.
    whole = fresh.versions.get("source_hash") == source_hash()
    return differences(report, fresh, FACTS if whole else ()), _details(report, fresh) if whole else []


def differences(stored: Report, fresh: Report, further: Sequence[str] = ()) -> list[str]:
    """Results and some further fields of a stored report that are not as recomputed."""
    found = []
    for name in (*SAME, *NEAR, *further):
        was, is_now = getattr(stored, name), getattr(fresh, name)
        is_near = name in NEAR and None not in (was, is_now) and isclose(was, is_now, rel_tol=ROUNDING)
        if was != is_now and not is_near and name in stored.model_fields_set:
            shown = "differs" if name in LONG else f"is {was}, the records give {is_now}"
            found.append(f"report.json: {name} {shown}")
    return found


def _details(stored: Report, fresh: Report) -> list[str]:
    """The names of all other fields that are not as recomputed."""
    names = stored.model_fields_set.difference(SAME, NEAR, FACTS, LATER)
    was = stored.model_dump(mode="json", include=names, exclude_unset=True)
    is_now = fresh.model_dump(mode="json", include=names)
    return [name for name in sorted(names) if not _alike(was[name], is_now[name])]


def _alike(was: object, is_now: object) -> bool:
    """True if two JSON values are equal but for rounding, and for keys that the first one lacks."""
    if isinstance(was, dict) and isinstance(is_now, dict):
        return all(key in is_now and _alike(value, is_now[key]) for key, value in was.items())
    if isinstance(was, list) and isinstance(is_now, list):
        return len(was) == len(is_now) and all(map(_alike, was, is_now))
    if isinstance(was, int | float) and isinstance(is_now, int | float):
        return isclose(was, is_now, rel_tol=ROUNDING_OF_DETAILS, abs_tol=ROUNDING_OF_DETAILS)
    return was == is_now
