"""Machine files from runs: a rehearsal of a known machine must give that machine back."""

import json
from pathlib import Path

import pytest

from aiperf.__main__ import main
from aiperf.errors import RunDirectoryError
from rehearsal.machine.file import MachineFile, read_machine
from rehearsal.machine.from_measurements import measured, text_of
from tests.support.hand_made import HandMadeRun

KNOWN = """
[machine]
name = "known"
[node]
accelerators = 2
accelerator = "Card"
memory_gib = 16.0
[step]
operations_per_s = 2e13
evaluation_operations_per_s = 3e13
seconds = 0.05
spread = 0.02
[start]
build_s = 4.0
trial_s = 1.0
[curve]
best = 0.7
gain = 0.0
epochs = 6.0
noise = 0.001
"""


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("known")
    (folder / "machine.toml").write_text(KNOWN)
    words = ("--machine", str(folder / "machine.toml"), "--replicas", "2", "--duration", "8m")
    small = ("--dataset", "digits", "--set", "training.batch_size=16")
    assert main(["rehearse", *words, *small, "--output", str(folder / "run")]) == 0
    return folder / "run"


def test_a_run_gives_the_machine_that_it_ran_on(rehearsed: Path) -> None:
    found, known = measured([rehearsed]), read_machine(rehearsed.parent / "machine.toml")
    assert (found.node.accelerators, found.node.accelerator) == (2, "Card")
    assert found.step.spread == pytest.approx(known.step.spread, rel=0.3)
    assert found.step.operations_per_s == pytest.approx(known.step.operations_per_s, rel=0.1)
    assert found.step.seconds == pytest.approx(known.step.seconds, rel=0.1)
    assert found.start.trial_s == pytest.approx(known.start.trial_s, rel=0.2)
    assert found.start.build_s == pytest.approx(known.start.build_s + known.start.trial_s, rel=0.2)
    assert found.curve.epochs == pytest.approx(known.curve.epochs, rel=0.3)
    assert found.machine.source == str(rehearsed)


def test_what_a_file_says_of_other_things_stays(rehearsed: Path, tmp_path: Path) -> None:
    planned = MachineFile.model_validate(
        {
            "machine": {"name": "planned"},
            "step": {"operations_per_s": 1.0},
            "failures": {"node_mtbf_h": 100.0},
        }
    )
    found = measured([rehearsed], planned)
    assert (found.machine.name, found.failures.node_mtbf_h) == ("planned", 100.0)
    assert found.step.operations_per_s > 1e9
    (tmp_path / "machine.toml").write_text(text_of(found))
    assert read_machine(tmp_path / "machine.toml") == found


def test_a_prediction_from_a_run_is_the_score_of_the_run(rehearsed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(rehearsed), "--format", "json"]) == 0
    score = json.loads(capsys.readouterr().out)["score_ops"]
    words = ("--dataset", "digits", "--set", "training.batch_size=16", "--replicas", "2", "--duration", "8m")
    assert main(["predict", "--from", str(rehearsed), *words, "--seeds", "1", "--format", "json"]) == 0
    row = json.loads(capsys.readouterr().out)[-1]
    assert row["replicas"] == 2
    assert row["score_ops"]["value"] == pytest.approx(score, rel=0.25), "another course of the search"


def test_what_tells_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    HandMadeRun(tmp_path / "run").at(0).release(100).end(100)
    with pytest.raises(RunDirectoryError, match="no epoch was trained and timed"):
        measured([tmp_path / "run"])
    assert main(["predict", "--replicas", "2"]) == 2
    assert "--machine FILE, or runs or a profile of it: --from PATH" in capsys.readouterr().err
    (tmp_path / "profile.json").write_text("{}")
    assert main(["predict", "--from", str(tmp_path / "profile.json")]) == 2
    assert "profile.json" in capsys.readouterr().err
