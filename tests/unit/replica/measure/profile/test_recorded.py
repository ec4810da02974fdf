"""Recordings taken apart: time by operation, phase and layer; memory by purpose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Conv, Dropout, Input, ReLU
from aiperf.network.operations import AIPERF_1, count
from replica.measure.profile.recorded.memory import (
    BATCH,
    NEW_VALUES,
    PROGRAM,
    ROUNDING,
    STATE,
    TEMPORARY,
    UNEXPLAINED,
    WEIGHTS,
    memory_at_peak,
)
from replica.measure.profile.recorded.operations import NO_LAYER, layer_times, operation_times
from replica.measure.profile.recorded.phases import FETCH, blocks, phase_of, wall_times
from replica.measure.profile.recorded.recording import Allocation, Event, Recording, Span, segments

GRADIENT = "gradient_tape/net/conv_1/Conv2DBackpropInput"


def event(start_s: float, end_s: float, node: str, operation: str, lane: str = "a") -> Event:
    return Event(start_s, end_s, node, operation, lane, "oneDNN")


def test_phases_by_the_names_of_nodes() -> None:
    assert phase_of("gradient_tape/resnet/conv1/Conv2DBackpropFilter", "Conv2DBackpropFilter") == "backward"
    assert phase_of("resnet/conv1/convolution", "Conv2D") == "forward"
    assert phase_of("AddN_3", "AddN") == "backward"
    assert phase_of("sgd/Mul", "Mul") == "update"
    assert phase_of("global_norm/L2Loss_3", "L2Loss") == "update"
    assert phase_of("", "AssignAddVariableOp") == "update"
    assert phase_of("IteratorGetNext", "IteratorGetNext") == "input"
    assert phase_of("gradients", "HorovodGroupedAllreduce") == "communication"


NAMES = json.loads(Path(__file__).with_name("recorded_names.json").read_text())
"""Names in recordings of a step of ResNet-50, by framework: phase, operation, one of its nodes."""


@pytest.mark.parametrize("framework", NAMES)
def test_every_recorded_name_has_its_phase(framework: str) -> None:
    for phase, operation, node in NAMES[framework]:
        if framework == "torch":  # has no names of nodes: phases go by autograd's engine
            assert phase_of("", operation) != "communication", operation
        else:
            assert phase_of(node, operation) == phase, (operation, node)


@pytest.mark.parametrize(
    "operation", ["FusedBatchNormV3", "FusedBatchNormEx", "BatchMatMulV2", "SpaceToBatchND", "BatchToSpaceND", "Batch"]
)
def test_no_operation_is_of_the_input_for_a_part_of_its_name(operation: str) -> None:
    assert phase_of("net/layer", operation) == "forward"


@pytest.mark.parametrize(
    "operation",
    [
        "BatchDatasetV2",
        "ParallelMapDatasetV2",
        "TensorSliceDataset",
        "DecodePng",
        "OneShotIterator",
        "DecodeAndCropJpeg",
        "ReadFile",
    ],
)
def test_the_input_is_of_the_input(operation: str) -> None:
    assert phase_of("", operation) == "input"


@pytest.mark.parametrize(
    "operation",
    [
        "HorovodAllreduce",
        "CollectiveReduceV3",
        "NcclAllReduce",
        "all-reduce",
        "all-reduce-start",
        "reduce-scatter",
        "collective-permute",
    ],
)
def test_exchanges_are_communication_whatever_their_node(operation: str) -> None:
    assert phase_of("jit(step)/transpose(jvp(net))/psum", operation) == "communication"


def test_an_event_is_not_charged_for_those_inside_it() -> None:
    outer, inner, deepest, last = (
        event(0, 100, "outer", "A"),
        event(10, 60, "inner", "B"),
        event(20, 30, "deepest", "C"),
        event(200, 205, "last", "D"),
    )
    other = event(50, 70, "other lane", "E", "b")
    found = [(part.event.node, part.start_s, part.end_s) for part in segments([last, deepest, inner, outer, other])]
    assert found == [
        ("outer", 0, 10),
        ("inner", 10, 20),
        ("deepest", 20, 30),
        ("inner", 30, 60),
        ("outer", 60, 100),
        ("last", 200, 205),
        ("other lane", 50, 70),
    ]


def test_phases_share_the_wall_time_of_a_step_and_sum_to_it() -> None:
    step = Span("train", 100.0, 120.0)
    recording = Recording(
        events=(
            event(102, 106, "net/conv/convolution", "Conv2D"),
            event(104, 108, GRADIENT, "Conv2DBackpropInput", "b"),
            event(107, 113, "gradients", "HorovodGroupedAllreduce", "exchanges"),
            event(112, 114, "gradients_1", "HorovodGroupedAllreduce", "exchanges"),
            event(115, 118, "sgd/Mul", "Mul"),
            event(100, 120, "read", "PrefetchDataset", "pipeline"),
        ),
        spans=(step, Span(FETCH, 100.0, 101.5)),
    )
    found = wall_times(step, recording)
    assert found == {
        "input": pytest.approx(1.5),
        "forward": pytest.approx(2 + 1),  # alone, then half of the two seconds with the backward pass
        "backward": pytest.approx(1 + 2),
        "communication": pytest.approx(6),  # the first second is hidden behind the backward pass
        "update": pytest.approx(3),
        "host": pytest.approx(0.5 + 1 + 2),
    }
    assert sum(found.values()) == pytest.approx(step.seconds)


def test_a_timeline_joins_what_follows_at_once() -> None:
    step = Span("train", 10.0, 20.0)
    recording = Recording(
        events=(
            event(11, 12, "net/a", "Conv2D"),
            event(12.001, 14, "net/b", "Relu"),
            event(14, 15, GRADIENT, "Conv2DBackpropInput"),
            event(16, 17, "net/c", "Conv2D"),
        ),
        spans=(Span(FETCH, 10.0, 10.5),),
    )
    found = [(each.lane, each.phase, each.operation, each.start_s, each.end_s) for each in blocks(step, recording)]
    assert found == [
        ("a", "forward", "Relu", 1.0, 4.0),
        ("a", "backward", "Conv2DBackpropInput", 4.0, 5.0),
        ("a", "forward", "Conv2D", 6.0, 7.0),
        ("batch", "input", "fetch", 0.0, 0.5),
    ]


def network() -> Architecture:
    return Architecture(
        (
            Node("in", Input(8, 8, 3)),
            Node("conv", Conv(4), ("in",)),
            Node("relu", ReLU(), ("conv",)),
            Node("drop", Dropout(0.5), ("relu",)),
        )
    )


def test_time_by_operation_and_by_layer_is_the_same_in_all() -> None:
    events = [
        event(0, 4, "net/conv_1/convolution", "Conv2D"),
        event(4, 10, GRADIENT, "Conv2DBackpropInput"),
        event(10, 11, "net/drop_1/Mul", "Mul"),
        event(20, 24, "net/conv_1/convolution", "Conv2D"),
        event(24, 25, "sgd/Mul_7", "Mul"),
    ]
    times = operation_times(events, steps=2)
    assert [(each.operation, each.phase, each.seconds, each.calls) for each in times] == [
        ("Conv2D", "forward", 4.0, 1.0),
        ("Conv2DBackpropInput", "backward", 3.0, 0.5),
        ("Mul", "forward", 0.5, 0.5),
        ("Mul", "update", 0.5, 0.5),
    ]
    layers = layer_times(events, 2, network(), AIPERF_1, batch_size=6)
    convolution = count(network()).by_kind["conv"].operations.total
    assert [(each.kind, each.layers, each.seconds, each.operations) for each in layers] == [
        ("conv", 1, 7.0, 6 * convolution),
        ("dropout", 1, 0.5, 0),
        (NO_LAYER, 0, 0.5, 0),
        ("relu", 1, 0.0, 6 * 8 * 8 * 4),
    ]
    assert sum(each.seconds for each in layers) == sum(each.seconds for each in times)


class Memory:
    """Allocations of one allocator, written down as they happen."""

    def __init__(self, in_use: int) -> None:
        self.found: list[Allocation] = []
        self._in_use = self._peak = in_use

    def take(self, address: int, size: int, node: str, region: str = "output", rounding: int = 0) -> Memory:
        return self._add(True, address, size + rounding, size, node, region)

    def free(self, address: int, size: int) -> Memory:
        return self._add(False, address, size, size, "", "")

    def _add(self, taken: bool, address: int, size: int, requested: int, node: str, region: str) -> Memory:
        self._in_use += size if taken else -size
        self._peak = max(self._peak, self._in_use)
        moment = float(len(self.found))
        self.found.append(
            Allocation(moment, taken, address, size, requested, node, region, "pool", self._in_use, self._peak, 0.25)
        )
        return self


KNOWN = {WEIGHTS: 1000, STATE: 500, BATCH: 100}


def test_purposes_sum_to_the_peak_of_the_allocator() -> None:
    memory = Memory(1640)  # 40 bytes beyond weights, state and batch
    memory.take(1, 300, "net/conv_1/convolution", rounding=20)
    memory.take(2, 200, GRADIENT)
    memory.take(3, 70, "net/conv_1/convolution", "temp")
    memory.free(3, 70)
    memory.take(4, 60, GRADIENT, "temp").take(5, 33, "__inference_train_1")
    memory.free(4, 60).free(2, 200)
    found, totals = memory_at_peak(memory.found, KNOWN, [0.0])
    assert totals is not None
    assert found == {
        **KNOWN,
        "activations": 300,
        "gradients": 200,
        "input queue": 0,
        TEMPORARY: 60,
        "persistent": 0,
        PROGRAM: 33,
        NEW_VALUES: 0,
        ROUNDING: 20,
        UNEXPLAINED: 40,
    }
    assert sum(found.values()) == totals.peak_bytes == 1640 + 300 + 20 + 200 + 60 + 33
    assert totals.explained == pytest.approx(1 - 40 / totals.peak_bytes)
    assert (totals.name, totals.lifetime_peak_bytes, totals.fragmentation) == ("pool", totals.peak_bytes, 0.25)


def test_values_of_an_update_take_the_place_of_variables() -> None:
    memory = Memory(1600)
    memory.take(1, 400, "sgd/Mul_1").take(2, 500, "sgd/AssignAddVariableOp_2", "temp")
    memory.free(90, 400)  # one of them has replaced a variable
    memory.take(3, 700, "net/conv_1/convolution")
    found, totals = memory_at_peak(memory.found, KNOWN, [0.0])
    assert (found[NEW_VALUES], found["activations"], found[UNEXPLAINED]) == (500, 700, 0)
    assert totals is not None
    assert sum(found.values()) == totals.peak_bytes
    # In the next step they are variables.
    memory.free(3, 700).free(91, 500).take(4, 20, "net/conv_1/convolution")
    found, totals = memory_at_peak(memory.found, KNOWN, [6.0])
    assert (found[NEW_VALUES], found["activations"], found[UNEXPLAINED]) == (0, 20, 0)
    assert totals is not None
    assert (totals.peak_bytes, totals.lifetime_peak_bytes) == (1620, 2800)


def test_chunks_of_variables_are_larger_than_the_variables() -> None:
    memory = Memory(1600)
    memory.take(1, 500, "sgd/Mul_1", rounding=24).free(90, 500).take(2, 60, GRADIENT)
    found, _ = memory_at_peak(memory.found, KNOWN, [2.0])
    assert (found[ROUNDING], found["gradients"], found[NEW_VALUES], found[UNEXPLAINED]) == (24, 60, 0, 0)


def test_without_allocations_only_the_known_is_known() -> None:
    assert memory_at_peak([], KNOWN, [0.0]) == (KNOWN, None)
