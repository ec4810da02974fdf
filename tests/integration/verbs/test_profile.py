"""A training step under TensorFlow's profiler, as a user calls it, and its recording read."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from aiperf.network.operations import count
from replica.profile.xplane import _time_inside, phase_of, plain
from search_space.resnet import resnet
from testing.hand_made import HandMadeRun, aiperf


def test_a_step_is_taken_apart_by_operation_phase_and_memory(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1).end(100)
    done = aiperf("profile", run.paths.root, "--batch-size", 16, "--steps", 2, "--output", tmp_path / "out",
                  "--format", "json", timeout_s=250)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "out" / "profile.json").read_text())
    calls = {(item["operation"], item["phase"]): item["calls"] for item in found["operations"]}
    assert calls["Conv2D", "forward"] == 53
    assert calls["Conv2DBackpropFilter", "backward"] == 53
    assert calls["Conv2DBackpropInput", "backward"] == 52, "the first convolution needs no gradient of its input"
    assert {phase for _, phase in calls} >= {"forward", "backward", "update"}
    assert all(item["seconds"] >= 0 for item in found["operations"])
    assert sum(item["seconds"] for item in found["operations"]) > 0
    memory = found["memory_bytes"]
    assert memory["weights"] == 4 * resnet(50, 32, 10).parameter_count
    assert memory["input"] == 16 * 4 * (32 * 32 * 3 + 10)
    assert memory["activations"] > memory["input"]
    assert memory["gradients"] > 0
    assert found["image_operations"] == count(resnet(50, 32, 10)).operations.total
    assert (tmp_path / "out" / "profile.svg").exists()
    assert "Profile of a training step" in (tmp_path / "out" / "profile.html").read_text()


def test_a_trial_that_does_not_exist_and_a_batch_that_does_not_fit_are_reported(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(100).at(1).start_trial(1).end(100)
    missing = aiperf("profile", run.paths.root, "--trial", 7)
    assert (missing.returncode, "there is no started trial 7" in missing.stderr) == (2, True)
    assert aiperf("profile", run.paths.root, "--steps", 0).returncode == 2
    huge = aiperf("profile", "--batch-size", 1000, "--steps", 1, timeout_s=250)
    assert (huge.returncode, "has no 3 whole batches of 1000 images" in huge.stderr) == (1, True)


def test_without_tensorflow_the_profile_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *more: None if name == 'tensorflow' else find(name, *more)\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    result = aiperf("profile", environment={"PYTHONPATH": path})
    assert (result.returncode, "pip install '.[tensorflow]'" in result.stderr) == (3, True)


def test_phases_by_the_names_of_nodes() -> None:
    assert phase_of("gradient_tape/resnet/conv1/Conv2DBackpropFilter", "Conv2DBackpropFilter") == "backward"
    assert phase_of("resnet/conv1/convolution", "Conv2D") == "forward"
    assert phase_of("AddN_3", "AddN") == "backward"
    assert phase_of("sgd/Mul", "Mul") == "update"
    assert phase_of("", "AssignAddVariableOp") == "update"
    assert phase_of("IteratorGetNext", "IteratorGetNext") == "input"
    assert plain("_MklNativeConv2D") == "Conv2D"


@dataclass
class Event:
    offset_ps: int
    duration_ps: int


def test_an_event_is_not_charged_for_its_children() -> None:
    events = [Event(0, 100), Event(10, 50), Event(20, 10), Event(70, 20), Event(200, 5)]
    assert _time_inside(events) == [70, 10, 0, 0, 0]
