"""Machine files, and the times that follow from them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from aiperf.__main__ import parser_of
from aiperf.config.datasets import IMAGENET
from aiperf.errors import ConfigError
from aiperf.network.operations import count
from rehearsal.machine.file import FOLDER, AllReduceSection, CurveSection, MachineFile, read_machine
from rehearsal.machine.from_measurements import text_of
from rehearsal.pace import all_reduce_s, pace_of
from rehearsal.prediction import Band, FirstLimit, Predicted, _band, _clipped, _regulated
from rehearsal.subject import Curve
from rehearsal.verbs.predict import _print
from search_space.resnet import resnet

RESNET50 = count(resnet(50, 224, 1000))


def machine_of(**sections: object) -> MachineFile:
    return MachineFile.model_validate({"step": {"operations_per_s": 1e13}, **sections})


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.toml")), ids=lambda file: file.stem)
def test_every_example_is_a_machine_file(file: Path, tmp_path: Path) -> None:
    machine = read_machine(file)
    (tmp_path / "again.toml").write_text(text_of(machine))
    assert read_machine(tmp_path / "again.toml") == machine, "a prediction writes it to its folder"
    assert machine.machine.source
    assert machine.node.ranks == (9594 if file.stem == "cori-9594" else 8)


def test_a_machine_that_comes_with_aiperf_needs_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    parser = parser_of("predict")
    assert parser.parse_args(["--machine", "t4-4x8"]).machine == FOLDER / "t4-4x8.toml"
    with pytest.raises(SystemExit):
        parser.parse_args(["--machine", "t4"])
    assert "known are ascend-512x8, cori-9594, h100-8x8, planned-4096x8, t4-4x8" in capsys.readouterr().err
    (tmp_path / "t4").touch()
    assert parser.parse_args(["--machine", "t4"]).machine == Path("t4")


def test_a_bad_file_is_refused_with_all_its_problems(tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    file.write_text("[step]\noperations_per_s = -1\nspeed = 3\n[failures]\nnode_mtbf_h = 0\n")
    with pytest.raises(ConfigError) as caught:
        read_machine(file)
    problems = "\n".join(caught.value.problems)
    assert all(part in problems for part in ("step.operations_per_s", "step.speed", "failures.node_mtbf_h", str(file)))


def test_an_epoch_takes_its_operations_at_the_rate_of_all_accelerators() -> None:
    machine = machine_of(node={"accelerators": 8})
    pace = pace_of(machine, RESNET50.operations, RESNET50.parameters, 448, IMAGENET)
    total = IMAGENET.train_images * RESNET50.operations.total + IMAGENET.validation_images * RESNET50.operations.forward
    assert pace.training_s + pace.evaluation_s == pytest.approx(total / 8e13)


def test_the_parts_of_an_epoch_sum_to_it() -> None:
    machine = machine_of(
        node={"accelerators": 4},
        step={"operations_per_s": 1e14, "seconds": 0.01},
        all_reduce={"latency_s": 1e-4, "bytes_per_s": 1e9, "overlap": 0.5},
        input={"images_per_s": 2000.0},
    )
    pace = pace_of(machine, RESNET50.operations, RESNET50.parameters, 64, IMAGENET)
    parts = pace.compute_s + pace.launch_s + pace.exchange_s + pace.input_s
    assert parts == pytest.approx(pace.training_s)
    assert min(pace.compute_s, pace.launch_s, pace.exchange_s, pace.input_s) > 0


def test_all_reduce_by_hand() -> None:
    ring = AllReduceSection(algorithm="ring", latency_s=1.0, bytes_per_s=100.0)
    tree = AllReduceSection(algorithm="tree", latency_s=1.0, bytes_per_s=100.0)
    # 100 weights are 400 bytes: 4 s over one link, 1 s for a quarter of them.
    assert all_reduce_s(ring, 4, 100) == pytest.approx(2 * 3 * (1 + 1))
    assert all_reduce_s(tree, 4, 100) == pytest.approx(2 * 2 * (1 + 4))
    assert all_reduce_s(ring, 1, 100) == 0


@given(st.integers(0, 2**31), st.integers(1, 200), st.floats(1e-6, 100.0))
def test_a_curve_is_an_accuracy_and_the_same_each_time(seed: int, epoch: int, rate: float) -> None:
    once, again = (Curve(CurveSection(), "abc", {"learning_rate": rate}, seed).accuracy(epoch) for _ in range(2))
    assert once == again
    assert 0 <= once < 1


def test_a_rate_beyond_any_accelerator_is_refused() -> None:
    with pytest.raises(ValidationError, match="operations_per_s"):
        machine_of(step={"operations_per_s": 1e30})


def test_one_sample_has_no_band() -> None:
    assert _band([3.0]).scaled(2) == Band(6.0, None, None)
    assert _clipped(_band([0.5]), 0.6) == Band(0.6)
    assert _regulated(Band(2.0), Band(0.1, 0.05, 0.2)).low is None
    several = _band([1.0, 2.0, 3.0])
    assert several.low is not None
    assert several.high is not None
    assert several.low < several.value < several.high


@pytest.mark.parametrize("efficiency", [0.98, 1.08])
def test_an_efficiency_above_1_is_explained(efficiency: float, capsys: pytest.CaptureFixture[str]) -> None:
    row = Predicted(2, 16, True, Band(1e12), Band(1e12), Band(0.3), Band(efficiency), FirstLimit("input", 64))
    _print([row], "8 H100")
    assert ("an efficiency above 100 %: more replicas find larger networks" in capsys.readouterr().err) == (
        efficiency > 1
    )
