"""Results of several days: runs by hand, screenings of nodes that exist in this process alone."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from aiperf.clock import format_utc
from aiperf.screening.outcome import Outcome
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.results.source import RunResult
from tests.support.hand_made import T0_MS, HandMadeRun
from tests.support.nodes.screened import screened

DAY_MS = 86_400_000


@cache
def base() -> Report:
    """The report of a run of one epoch."""
    with TemporaryDirectory() as folder:
        run = HandMadeRun(Path(folder), {"training.max_epochs": 4}).at(0).release(100).at(1)
        run.start_trial(1).at(60).epoch(1, 1).end_trial(1).end(100)
        report = build_report(read_run(run.paths))
    assert report.verdict == "unofficial"
    return report


def day_of(day: int) -> str:
    return format_utc(T0_MS + day * DAY_MS)


def result(day: int, score: float | None = 100.0, **changes: Any) -> RunResult:
    """The result of a run on that day."""
    fields = {
        "started": day_of(day),
        "score_ops": score,
        "regulated_score_ops": score,
        "images_trained": 1000,
        "phases_s": {"search": 5.0, "train": 80.0, "idle": 15.0},
        "verdict": "unofficial" if score is not None else "invalid",
        **changes,
    }
    return RunResult(Path(f"runs/{day}"), base().model_copy(update=fields), True, identity=f"run of day {day}")


def screening(
    folder: Path, day: int, slow: dict[int, dict[tuple[str, str], float]], lost: int | None = None
) -> Outcome:
    """The screening of three nodes with eight devices each; `slow` as `screened` takes it."""
    outcome = screened(folder, 3, slow, {lost: [None]} if lost is not None else {})
    return msgspec.structs.replace(outcome, at=day_of(day), name="big")
