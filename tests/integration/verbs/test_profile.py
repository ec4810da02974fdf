"""A training step under TensorFlow's profiler, as a user calls it, and its recording read."""

import html
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import RunDirectoryError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.json_files import to_json
from aiperf.network.layers import BatchNorm, Conv, Dense, Dropout, GlobalAveragePool, Input, ReLU, Softmax
from aiperf.network.operations import count
from aiperf.network.science import SCIENCE_1
from aiperf.processes import python_module
from analysis.output.page.vocabulary import readable_time
from analysis.reading.profile import KindWork, read_profile
from rehearsal.machine.from_measurements import measured
from replica.measure.profile.cli import profile_step
from replica.measure.profile.settings import ProfileSettings, resized
from replica.trainer.frameworks import FRAMEWORKS
from search_space.resnet import resnet
from tests.support.folders import ROOT
from tests.support.hand_made import HandMadeRun, aiperf
from tests.support.trainings.installed import need_frameworks
from workloads.networks import NETWORKS


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of a run's trial, with its page and figures."""
    root = tmp_path_factory.mktemp("profile")
    run = HandMadeRun(root / "run").at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1).end(100)
    done = aiperf(
        "profile",
        run.paths.root,
        "--batch-size",
        16,
        "--steps",
        2,
        "--output",
        root / "out",
        "--format",
        "json",
        timeout_s=500,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((root / "out" / "profile.json").read_text())
    return root / "out"


@pytest.fixture(scope="module")
def found(output: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((output / "profile.json").read_text())
    return document


def test_a_step_is_taken_apart_by_operation_and_phase(found: dict[str, Any], output: Path) -> None:
    calls = {(item["operation"], item["phase"]): item["calls"] for item in found["operations"]}
    assert calls["Conv2D", "forward"] == 53
    assert calls["Conv2DBackpropFilter", "backward"] == 53
    assert calls["Conv2DBackpropInput", "backward"] == 52, "the first convolution needs no gradient of its input"
    assert {phase for _, phase in calls} >= {"forward", "backward", "update"}
    assert (
        sum(number for (name, phase), number in calls.items() if "FusedBatchNorm" in name and phase == "forward") == 53
    )
    assert {name for name, phase in calls if phase == "input"} <= {"IteratorGetNext"}, "operations by their whole names"
    assert all(item["seconds"] >= 0 for item in found["operations"])
    assert sum(item["seconds"] for item in found["operations"]) > 0
    assert found["image_operations"] == count(resnet(50, 32, 10)).operations.total
    assert sum(found["phases"].values()) == pytest.approx(found["step_s"], rel=0.5)
    assert found["phases"]["communication"] == 0
    assert min(found["outside"].values()) > 0
    blocks = found["timeline"]["blocks"]
    assert {block["phase"] for block in blocks} >= {"input", "forward", "backward", "update"}
    assert all(0 <= block["start_s"] <= min(block["end_s"], found["timeline"]["seconds"]) for block in blocks)
    assert (output / "timeline.svg").exists()
    assert (output / "profile.svg").exists()
    page = (output / "profile.html").read_text()
    assert f"<h1>Profile of a training step of architecture {found['architecture'][:16]}</h1>" in page
    software, device = html.escape(found["software"]), html.escape(found["device"])
    assert software.startswith("tensorflow 2.")
    assert f"{software}, on {device}; {readable_time(found['recorded'])}." in page
    assert "TensorFlow&#39;s profiler has no rule for Relu, ReluGrad" in page


def test_layers_have_their_time_next_to_what_they_count(found: dict[str, Any]) -> None:
    kinds = {item["kind"]: item for item in found["layers"]}
    assert kinds["conv"]["layers"] == 53
    assert kinds["conv"]["operations"] == 16 * count(resnet(50, 32, 10)).by_kind["conv"].operations.total
    assert sum(item["seconds"] for item in found["layers"]) == pytest.approx(
        sum(item["seconds"] for item in found["operations"])
    )
    assert {item["library"] for item in found["operations"]} <= {"oneDNN", "TensorFlow"}


def test_purposes_of_memory_sum_to_the_peak(found: dict[str, Any]) -> None:
    memory = found["memory_bytes"]
    assert memory["weights"] == 4 * resnet(50, 32, 10).parameter_count
    assert memory["input"] == 16 * 4 * (32 * 32 * 3 + 10)
    assert memory["activations"] > memory["input"]
    assert memory["gradients"] > 0
    totals = found["allocator"]
    assert sum(memory.values()) == totals["peak_bytes"]
    # By how much chunks that were taken before the recording are too large, nobody knows.
    assert totals["explained"] >= 0.9, memory
    assert found["process_peak_bytes"] > totals["peak_bytes"]
    assert found["counters"]["per_step"] or found["counters"]["missing"]["cpu"]


def test_a_trial_that_does_not_exist_and_a_batch_that_does_not_fit_are_reported(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(100).at(1).start_trial(1).end(100)
    missing = aiperf("profile", run.paths.root, "--trial", 7)
    assert (missing.returncode, "there is no started trial 7" in missing.stderr) == (2, True)
    assert aiperf("profile", run.paths.root, "--steps", 0).returncode == 2
    huge = aiperf("profile", "--batch-size", 3000, "--steps", 1, timeout_s=500)
    assert (huge.returncode, "has no whole batch of 3000 images" in huge.stderr) == (1, True)


def test_without_tensorflow_the_profile_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *more: None if name == 'tensorflow' else find(name, *more)\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    result = aiperf("profile", environment={"PYTHONPATH": path})
    assert (result.returncode, "pip install '.[tensorflow]'" in result.stderr) == (3, True)


def test_a_scientific_network_at_a_small_size_compiled_by_xla(tmp_path: Path) -> None:
    done = aiperf(
        "profile", "--workload", "cosmoflow", "--size", 32, "--steps", 1, "--xla", "--format", "json", timeout_s=500
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    network = resized(NETWORKS["cosmoflow"](), 32)
    assert found["architecture"] == network.hash
    assert (found["rule_set"], found["image_operations"]) == ("science-1", count(network, SCIENCE_1).operations.total)
    assert {item["library"] for item in found["operations"]} >= {"XLA"}
    assert any(item["operation"].startswith("fusion of ") for item in found["operations"])
    assert {item["phase"] for item in found["operations"]} >= {"forward", "backward", "update"}
    dropouts = sum(isinstance(node.layer, Dropout) for node in network.nodes)
    seeds = found["memory_bytes"]["weights"] - 4 * network.parameter_count
    assert seeds % dropouts == 0
    assert 0 < seeds // dropouts <= 16, "the state of each dropout's generator"
    assert found["memory_bytes"]["buffers of XLA programs"] > 0


def test_memory_against_batch_size_with_the_largest_batch_that_fits(tmp_path: Path) -> None:
    done = aiperf(
        "profile",
        "--workload",
        "hepcnn-64",
        "--sweep",
        "batch=2,4,100000000",
        "--steps",
        1,
        "--output",
        tmp_path,
        "--format",
        "json",
        timeout_s=500,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "sweep.json").read_text())
    two, four, most = found["points"]
    assert 0 < two["intermediate_bytes"] < four["intermediate_bytes"]
    assert (most["fits"], "it would take about" in most["reason"]) == (False, True)
    assert found["largest_measured"] == 4
    assert 4 < found["largest_predicted"] < 100_000_000
    assert (tmp_path / "sweep.svg").exists()
    assert "largest batch, predicted" in (tmp_path / "sweep.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workload", "dcgan-cos/generator", "--size", "32"), "which has no size to change"),
        (("--workload", "frcnn-ewa/body", "--size", "96"), "does not take inputs of size 96: node 'sum4'"),
        (("--workload", "hepcnn", "--ranks", "2"), "--ranks trains on a data set"),
        (("--xla", "--framework", "torch"), "PyTorch does not compile with XLA"),
        (("--sweep", "depth=1"), "--sweep takes batch=1,2,4 or size=32,64"),
        (("--trial", "2"), "--trial names a trial of a run"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(words: tuple[str, ...], said: str) -> None:
    done = aiperf("profile", *words)
    assert (done.returncode, said in done.stderr, len(done.stderr.splitlines())) == (2, True, 1), done.stderr


SMALL = Architecture(
    (
        Node("in", Input(32, 32, 3)),
        Node("conv", Conv(32, (5, 5), (2, 2)), ("in",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("relu", ReLU(), ("bn",)),
        Node("gap", GlobalAveragePool(), ("relu",)),
        Node("fc", Dense(10), ("gap",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)


def test_a_machine_file_has_the_rates_of_the_profile(found: dict[str, Any], output: Path, tmp_path: Path) -> None:
    file = output / "profile.json"
    machine = measured([file])
    assert machine.step.operations_per_s == pytest.approx(found["image_operations"] * 16 / found["step_s"])
    forward = count(resnet(50, 32, 10)).operations.forward
    assert machine.step.evaluation_operations_per_s == pytest.approx(forward * 16 / found["outside"]["evaluation"])
    assert machine.node.accelerators == 1
    two = {**found, "settings": {**found["settings"], "ranks": 2}}
    (tmp_path / "two.json").write_text(json.dumps(two))
    both = measured([tmp_path / "two.json"])
    assert both.node.accelerators == 2
    assert both.step == machine.step, "a rank trains its own batch"
    science = {**found, "settings": {**found["settings"], "workload": "cosmoflow"}}
    (tmp_path / "science.json").write_text(json.dumps(science))
    with pytest.raises(RunDirectoryError, match="does not tell AIPerf's pace"):
        measured([tmp_path / "science.json"])


def test_two_ranks_show_what_they_exchange(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text(to_json(SMALL))
    found = profile_step(
        ProfileSettings(
            output=str(tmp_path / "profile.json"),
            architecture=str(tmp_path / "small.json"),
            batch_size=32,
            steps=2,
            ranks=2,
        )
    )
    exchanges = [item for item in found["operations"] if item["phase"] == "communication"]
    assert {item["library"] for item in exchanges} == {"Horovod"}
    # Horovod joins the gradients that are ready together: on a busy machine it needs several turns.
    assert sum(item["calls"] for item in exchanges) >= 1
    assert 0 < found["phases"]["communication"] <= sum(item["seconds"] for item in exchanges) * 1.05
    assert any(block["lane"] == "exchanges" for block in found["timeline"]["blocks"])


def check_work(framework: str, work: Mapping[str, KindWork]) -> None:
    """The convolution has two passes, since images need no gradient, and the product three."""
    counted = {kind: 64 * total.operations.total for kind, total in count(SMALL).by_kind.items()}
    assert {kind: item.counted for kind, item in work.items() if item.counted} == {
        kind: operations for kind, operations in counted.items() if operations
    }
    # Of the 5 taps at each of 16 places of an axis, 3 meet padding; the others count it.
    taps = 16 * 5 - 3 if framework == "jax" else 16 * 5
    assert work["conv"].executed == pytest.approx(64 * 2 * (2 * taps**2 * 3 * 32), rel=0.01)
    assert work["dense"].executed == pytest.approx(64 * 3 * (2 * 32 * 10), rel=0.05)
    assert work["conv"].ratio == pytest.approx((work["conv"].executed or 0.0) / counted["conv"])
    unknown = {kind for kind, item in work.items() if item.executed is None}
    assert (
        unknown
        == {
            "tensorflow": {"batchnorm", "relu"},
            "jax": {"softmax"},
            "torch": {"batchnorm", "globalpool", "relu", "softmax"},
        }[framework]
    )
    assert {kind for kind, item in work.items() if item.reason} == unknown


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_shows_its_phases_and_its_memory(framework: str, tmp_path: Path) -> None:
    need_frameworks(framework)
    (tmp_path / "small.json").write_text(to_json(SMALL))
    settings = ProfileSettings(
        output=str(tmp_path / "profile.json"),
        architecture=str(tmp_path / "small.json"),
        batch_size=64,
        steps=2,
        framework=framework,
    )
    done = subprocess.run(
        python_module("replica.measure.profile.step", settings.model_dump_json()),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found = read_profile(tmp_path / "profile.json")
    assert {"forward", "backward", "update"} <= {item.phase for item in found.operations}
    assert min(found.phases[phase] for phase in ("forward", "backward", "update")) > 0
    assert sum(found.phases.values()) == pytest.approx(found.step_s, rel=0.5)
    assert found.memory_bytes["weights"] >= 4 * SMALL.parameter_count
    # One map of 16 x 16 x 32 of every image at least is kept for the backward pass.
    held = found.memory_bytes.get("activations", 0) + found.memory_bytes.get("buffers of XLA programs", 0)
    assert held >= 64 * 4 * 16 * 16 * 32
    check_work(framework, {item.kind: item for item in found.work})
    kinds = {item.kind for item in found.layers}
    assert kinds == set() if framework == "torch" else {"conv", "batchnorm", "dense"} <= kinds
