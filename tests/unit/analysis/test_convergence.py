"""Trainings that converge faster than the reference are noted, and change no verdict."""

import json
from pathlib import Path

import pytest

from aiperf.__main__ import main
from aiperf.config.toml_text import parse_toml
from aiperf.errors import UsageError
from aiperf.rules.convergence import Point, Reference, points_of
from analysis.reading.run_data import read_run
from analysis.report import convergence
from analysis.report.build import build_report
from analysis.report.model import Report
from benchmarks.trainings.convergence import AT_EPOCHS, text_of, trainings_of
from tests.support.hand_made import HandMadeRun

POINTS = ((1, 0.8, 0.7), (2, 0.5, 0.4), (4, 0.3, 0.2))
REFERENCE = Reference(source="made up", points=tuple(Point(epochs=e, error=f, least=g) for e, f, g in POINTS))


@pytest.fixture(autouse=True)
def digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence, "references", lambda: {"digits": REFERENCE})


def run_of(root: Path, trainer: str = "keras") -> HandMadeRun:
    return HandMadeRun(root, {"training.trainer": trainer, "training.max_epochs": 8}).release(600)


def trained(run: HandMadeRun, trial: int, at_s: int, *correct: int, weights_from: int | None = None) -> HandMadeRun:
    """A trial with epochs of this many correct images of 360."""
    run.at(at_s).start_trial(trial, weights_from=weights_from)
    for number, images in enumerate(correct, start=1):
        run.at(at_s + 20 * number).epoch(trial, number, images)
    return run.end_trial(trial)


def notices(run: HandMadeRun) -> tuple[str, ...]:
    report: Report = build_report(read_run(run.end(600).paths))
    return report.notices


def test_trainings_within_the_band_are_not_noted(tmp_path: Path) -> None:
    assert notices(trained(run_of(tmp_path), 1, 1, 100, 210)) == ()


def test_the_training_furthest_beyond_it_is_named(tmp_path: Path) -> None:
    run = trained(trained(run_of(tmp_path), 1, 1, 110, 100), 2, 100, 100, 340)
    (notice,) = notices(run)
    assert notice.startswith("convergence: 2 training(s) ")
    assert "trial 2 has 0.0556 after 2.0 epochs" in notice and notice.endswith("at least 0.4000 is expected")


def test_inherited_work_counts(tmp_path: Path) -> None:
    alone = trained(trained(run_of(tmp_path / "alone"), 1, 1, 90, 210), 2, 100, 280)
    assert len(notices(alone)) == 1
    inherited = trained(trained(run_of(tmp_path / "inherited"), 1, 1, 90, 210), 2, 100, 280, weights_from=1)
    assert notices(inherited) == ()


def test_a_simulated_run_is_not_compared(tmp_path: Path) -> None:
    assert notices(trained(run_of(tmp_path, "simulated"), 1, 1, 340, 340)) == ()


def test_an_entry_made_of_runs_holds_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = HandMadeRun(tmp_path / "run", {"training.trainer": "keras", "training.max_epochs": 8}).release(600, 5)
    for replica in range(5):
        run.at(1).start_trial(replica + 1, replica).built(replica + 1, replica)
    for epoch, every in ((1, (100, 90, 120, 80, 90)), (2, (210, 250, 240, 200, 230))):
        for replica, correct in enumerate(every):
            run.at(20 * epoch).epoch(replica + 1, epoch, correct, replica)
    for replica in range(5):
        run.end_trial(replica + 1, replica)
    run.end(600)
    name, trainings = trainings_of(run.paths.root)
    text = text_of(name, "three", points_of(trainings, AT_EPOCHS))
    made = Reference.model_validate(parse_toml(text)["digits"])
    assert [(point.epochs, point.error) for point in made.points] == [(1.5, 0.6667), (2.5, 0.3056)]
    monkeypatch.setattr(convergence, "references", lambda: {"digits": made})
    assert build_report(read_run(run.paths)).notices == ()


def test_an_entry_is_not_made_of_damaged_or_simulated_runs(tmp_path: Path) -> None:
    simulated = trained(run_of(tmp_path / "simulated", "simulated"), 1, 1, 100).end(600)
    damaged = trained(run_of(tmp_path / "damaged"), 1, 1, 361).end(600)
    for run in (simulated, damaged):
        with pytest.raises(UsageError, match="needs an undamaged run"):
            trainings_of(run.paths.root)


def test_check_shows_the_notice_and_its_verdict_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statuses = []
    for name, correct in (("slow", 100), ("fast", 350)):
        trained(run_of(tmp_path / name), 1, 1, correct, correct).end(600)
        statuses.append(main(["check", str(tmp_path / name), "--replay", "0", "--format", "json"]))
        document = json.loads(capsys.readouterr().out)
        assert (document["verdict"], len(document["notices"])) == ("unofficial", name == "fast")
    assert statuses == [0, 0]
