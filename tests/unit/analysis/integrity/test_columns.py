"""Records in columns: what an honest run says, and damages of what a changed one does."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from aiperf.records.bodies import EpochCompleted
from aiperf.records.columns import TRAINED
from aiperf.records.record import decode_record, encode_record
from analysis.reading.history import ProgressThinning, read_writer
from analysis.reading.run_data import read_run
from tests.support.hand_made import T0_MS, HandMadeRun


def made(root: Path, *images: int) -> HandMadeRun:
    """A run of two hours with progress in an epoch, and at its end in an open one."""
    run = HandMadeRun(root).at(0).release(7200).at(1).start_trial(1)
    for step, trained in enumerate(images):
        run.at(200 + step * 100).progress(1, 1, trained)
    run.at(1000).epoch(1, 1)
    for step in range(4):
        run.at(2000 + step * 100).progress(1, 2, 100 * step)
    return run.end(7200)


def test_reports_of_an_honest_run_are_kept(tmp_path: Path) -> None:
    data = read_run(made(tmp_path, 100, 200, 300).paths)
    assert data.damages == ()
    assert data.ledger.trials[1].progress[:, TRAINED].tolist() == [100, 200, 300, 0, 100, 200, 300]


@pytest.mark.parametrize(
    ("images", "found"), [((100, 200, 150), "progress of trial 1 falls"), ((100, 10**9), "1000000000 images trained")]
)
def test_reports_that_cannot_be_are_found(tmp_path: Path, images: tuple[int, ...], found: str) -> None:
    damage, *_ = read_run(made(tmp_path, *images).paths).damages
    assert (damage.kind, damage.line) == ("bounds", 1 + len(images))
    assert damage.found.startswith(found)


@pytest.mark.parametrize(("later_s", "times", "kinds"), [(0, 1, set()), (4000, 1, {"time"}), (0, 2, {"witness"})])
def test_epochs_are_witnessed_once_and_in_time(tmp_path: Path, later_s: float, times: int, kinds: set[str]) -> None:
    run = HandMadeRun(tmp_path).at(0).release(7200).at(1).start_trial(1).at(1000).epoch(1, 1).at(2000)
    second = EpochCompleted(
        trial=1,
        epoch=2,
        images_trained=1437,
        images_evaluated=360,
        correct=300,
        loss=1.0,
        validation_loss=1.0,
        learning_rate=run.learning_rate(2),
    )
    second = run._evident(second)
    run.replicas[0].append(second)
    for _ in range(times):
        run.at(2000 + later_s)._witness(0, second)
    assert {damage.kind for damage in read_run(run.end(7200).paths).damages} == kinds


def epochs(root: Path, **changed: object) -> HandMadeRun:
    """A run of two hours with two epochs, the second of which is changed."""
    run = HandMadeRun(root).at(0).release(7200).at(1).start_trial(1).at(500).progress(1, 1, 700)
    run.at(1000).epoch(1, 1, correct_trained=0).at(1500).progress(1, 2, 10).at(2000)
    facts = {
        "trial": 1,
        "epoch": 2,
        "images_trained": 1437,
        "images_evaluated": 360,
        "correct": 310,
        "loss": 1.0,
        "validation_loss": 1.0,
        "learning_rate": run.learning_rate(2),
    }
    return run.completed(0, EpochCompleted(**{**facts, **changed})).end(7200)  # type: ignore[arg-type]


def test_epochs_of_an_honest_run_are_rows_and_objects_when_asked_for(tmp_path: Path) -> None:
    found = read_run(epochs(tmp_path).paths)
    own = found.ledger.trials[1].epochs
    assert found.damages == ()
    assert (1 in own, 2 in own, 3 in own, len(own)) == (True, True, False, 2)
    assert (own[2].time_ms, own[2].body.correct) == (T0_MS + 2_000_000, 310)
    assert [own[number].body.correct_trained for number in (1, 2)] == [0, None], "none right, and not counted"
    assert own.qualities()[2] == own[2].body.quality == 310 / 360
    assert [epoch.body for epoch in found.work.epochs_of(1)] == [own[1].body, own[2].body]


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({"epoch": 3}, {"bounds"}),
        ({"epoch": 1}, {"bounds", "conflict"}),
        ({"trial": 2}, {"conflict", "witness"}),
        ({"images_trained": 1436}, {"bounds", "evidence"}),
        ({"correct": 361}, {"bounds"}),
        ({"learning_rate": 0.5}, {"bounds"}),
        ({"learning_rate": -0.1}, {"bounds"}),
        ({"measured_quality": 0.9}, {"bounds"}),
        ({"evidence": "no hash"}, {"evidence"}),
    ],
    ids=lambda value: str(sorted(value)),
)
def test_an_epoch_that_cannot_be_is_found(tmp_path: Path, changed: dict[str, object], kinds: set[str]) -> None:
    assert kinds & {damage.kind for damage in read_run(epochs(tmp_path, **changed).paths).damages}


def test_the_first_epoch_of_a_number_is_the_one_that_was_heard_of(tmp_path: Path) -> None:
    run = epochs(tmp_path)
    file = run.paths.history_file("replica-0000-1")
    lines = file.read_bytes().splitlines(keepends=True)
    heard = next(record for record in map(decode_record, lines) if getattr(record.body, "correct", None) == 310)
    again = encode_record(replace(heard, body=replace(heard.body, epoch=3)))
    place = lines.index(encode_record(heard)) + 1
    file.write_bytes(b"".join([*lines[:place], again, *lines[place:]]))
    found = read_run(run.paths).damages
    assert "sequence" in {damage.kind for damage in found}
    assert [damage for damage in found if damage.kind == "witness" and damage.line == place] == []
    assert [damage.found for damage in found if "as history/primary-1" in damage.expected] == []


def test_a_line_that_comes_twice_counts_once_also_if_its_first_is_needless(tmp_path: Path) -> None:
    run = made(tmp_path, 100, 200, 300)
    file = run.paths.history_file("replica-0000-1")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines, lines[3]]))
    found = read_writer(file, ProgressThinning(T0_MS, T0_MS + 7_200_000))
    assert found.repeated.tolist() == []
    assert read_run(run.paths).ledger.trials[1].progress[:, TRAINED].tolist().count(300) == 2
