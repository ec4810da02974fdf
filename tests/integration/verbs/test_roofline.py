"""`aiperf ops --roofline`: ceilings of layers from a result of `aiperf micro`."""

import json
from pathlib import Path

import pytest

from tests.support.hand_made import aiperf_here


def test_layers_are_bound_by_computing_or_by_memory(tmp_path: Path) -> None:
    file = tmp_path / "micro.json"
    row = {"kind": "ceiling", "stack": "scripted", "precision": "float32", "ops_per_s": 1e12, "bytes_per_s": 1e10}
    file.write_text(json.dumps([{**row, "operator": "gemm"}, {**row, "operator": "triad"}]))
    # The ridge is at 100 operations a byte.
    command = ("ops", "--architecture", "cosmoflow", "--roofline", "--format", "json")
    document = json.loads(aiperf_here(*command, "--micro", file).stdout)
    layers = {layer["name"]: layer for layer in document["each_layer"]}
    # A leaky ReLU on 128^3 x 32: two operations for eight bytes.
    activation = layers["conv1_lrelu"]
    assert (activation["intensity"], activation["bound"]) == (0.25, "memory")
    assert activation["ceiling_ops"] == pytest.approx(2.5e9)
    # 3^3 convolution of 32 to 64 channels on 64^3: forward and two gradients, 4 bytes an element.
    elements = 64**3 * (32 + 64) + 27 * 32 * 64 + 64
    convolution = layers["conv2"]
    assert convolution["intensity"] == pytest.approx(
        (28_991_029_248 + 57_982_169_088 - 0) / (3 * 4 * elements), rel=2e-3
    )
    assert (convolution["ceiling_ops"], convolution["bound"]) == (pytest.approx(1e12), "compute")
    assert document["layers"]["leakyrelu"]["ceiling_ops"] == pytest.approx(2.5e9)
    assert document["layers"]["flatten"]["bound"] is None
    # The time at the ceilings is the sum over the layers.
    seconds = sum(
        (layer["forward"] + layer["backward"]) / layer["ceiling_ops"]
        for layer in document["each_layer"]
        if layer["ceiling_ops"]
    )
    assert document["roofline"]["images_per_s"] == pytest.approx(1 / seconds)
    unknown = json.loads(aiperf_here(*command).stdout)
    assert unknown["layers"]["conv"]["intensity"] == document["layers"]["conv"]["intensity"]
    assert (unknown["layers"]["conv"]["ceiling_ops"], unknown["layers"]["conv"]["bound"]) == (None, "not known")
    assert "not known" in aiperf_here("ops", "--architecture", "hepcnn", "--roofline").stdout


@pytest.mark.parametrize("facts", [{}, {"upper_bound": True}], ids=["an older file", "caches hold a part"])
def test_a_bandwidth_that_is_an_upper_bound_is_named(facts: dict[str, bool], tmp_path: Path) -> None:
    row = {"kind": "ceiling", "stack": "scripted", "precision": "float32", "ops_per_s": 1e12, "bytes_per_s": 1e10}
    file = tmp_path / "micro.json"
    file.write_text(json.dumps([{**row, "operator": "gemm"}, {**row, "operator": "triad", **facts}]))
    command = ("ops", "--architecture", "hepcnn", "--roofline", "--micro", file)
    assert ("the ceiling of memory is an upper bound" in aiperf_here(*command).stdout) == bool(facts)
    document = json.loads(aiperf_here(*command, "--format", "json").stdout)
    assert document["roofline"]["upper_bound"] == bool(facts)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "needs the ceilings gemm and triad"),
        ("{", "is not a result of 'aiperf micro"),
        (
            '[{"operator": "gemm", "kind": "ceiling", "stack": "x", "precision": "float32", "ops_per_s": -1,'
            ' "bytes_per_s": 1}]',
            "greater than 0",
        ),
    ],
)
def test_a_file_without_ceilings_is_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "micro.json"
    file.write_text(content)
    done = aiperf_here("ops", "--architecture", "hepcnn", "--roofline", "--micro", file)
    assert (done.returncode, message in done.stderr) == (2, True)
