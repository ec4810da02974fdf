"""Epochs that a primary heard of late, since it stood still."""

from pathlib import Path

import pytest

from aiperf.records.bodies import PrimaryPaused
from analysis.reading.run_data import read_run
from tests.support.hand_made import T0_MS, HandMadeRun

STILL_S = 2000


@pytest.mark.parametrize(("paused_s", "late"), [(None, True), (STILL_S, False), (60, True)])
def test_the_time_in_which_the_primary_stood_still_excuses_its_late_witness(
    tmp_path: Path, paused_s: int | None, late: bool
) -> None:
    run = HandMadeRun(tmp_path).at(0).release(3600).at(1).start_trial(1).at(100)
    run._latest_ms = T0_MS + (100 + STILL_S) * 1000  # the primary's time when it hears of the epoch
    run.epoch(1, 1).at(100 + STILL_S)
    if paused_s is not None:
        run.tell(PrimaryPaused(duration_ms=paused_s * 1000))
    data = read_run(run.end(3600).paths)
    assert [damage.kind for damage in data.damages if "before the primary heard of it" in damage.found] == (
        ["time"] if late else []
    )
