"""Causes of slow replicas: what differs is named."""

from __future__ import annotations

from pathlib import Path

from aiperf.records.bodies import PhaseBegan
from analysis.output.page.vocabulary import slowness
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.estimates import EffectPart
from tests.support.hand_made import HandMadeRun

REPLICAS, TRAININGS = 6, 4


def found_in(root: Path, epoch_s: float, input_s: float | None) -> list[EffectPart]:
    """Slow replicas of a run whose replica 2 has such epochs and waits for images."""
    run = HandMadeRun(root).at(0).release(1000, replicas=REPLICAS)
    for replica in range(REPLICAS):
        lasts_s = epoch_s if replica == 2 else 40.0
        waited_s = input_s if replica == 2 else 2.0
        for number in range(TRAININGS):
            trial = 1 + TRAININGS * replica + number
            begin_s = 1 + 200 * number
            run.at(begin_s).start_trial(trial, replica=replica)
            for epoch in (1, 2, 3):
                run.at(begin_s + lasts_s * epoch - 5 - replica / 100)
                run.replicas[replica].append(PhaseBegan(replica=replica, trial=trial, phase="evaluate"))
                run.at(begin_s + lasts_s * epoch).epoch(trial, epoch, replica=replica, input_s=waited_s)
                run.replicas[replica].append(PhaseBegan(replica=replica, trial=trial, phase="train"))
            run.at(begin_s + lasts_s * 3).end_trial(trial, replica)
    part = build_report(read_run(run.end(1000).paths)).comparison
    assert part is not None
    return [effect for effect in part.slow if effect.measure == "work"]


def test_a_replica_that_waits_for_images_is_slow_by_its_input(tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, 50.0, 12.0)
    assert (found.replica, found.phase) == (2, "input")
    assert "waiting for images takes 0.164 s longer" in slowness(found)


def test_a_replica_that_waits_no_longer_than_others_is_slow_by_its_training(tmp_path: Path) -> None:
    for case, input_s in (("measured", 2.0), ("not measured", None)):
        (found,) = found_in(tmp_path / case, 50.0, input_s)
        assert (found.replica, found.phase) == (2, "train")
