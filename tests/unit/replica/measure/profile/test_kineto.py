"""Traces of PyTorch's profiler, read into plain values."""

from typing import Any

import pytest

from replica.measure.profile.recorded.kineto import read_trace
from replica.measure.profile.recorded.memory import UNEXPLAINED, memory_at_peak
from replica.measure.profile.recorded.phases import FETCH, STEP, wall_times


def part(name: str, start: float, length: float, category: str = "cpu_op", thread: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start * 1e6, "dur": length * 1e6, "tid": thread}


def memory(moment: float, size: int, total: int, address: int, device: int = 0) -> dict[str, Any]:
    notes = {"Total Allocated": total, "Bytes": size, "Addr": address, "Device Type": device}
    return {"ph": "i", "name": "[memory]", "ts": moment * 1e6, "args": notes}


TRACE = {
    "traceEvents": [
        {"ph": "M", "name": "process_name"},
        part(STEP, 10, 10, "user_annotation"),
        part(FETCH, 10, 1, "user_annotation"),
        part("aten::conv2d", 11, 3),
        part("aten::mkldnn_convolution", 11.5, 2),
        part("autograd::engine::evaluate_function: ConvolutionBackward0", 14, 4),
        part("aten::convolution_backward", 14.5, 3),
        part("aten::add_", 18.5, 1),
        memory(12, 300, 300, 1),
        memory(15, 500, 800, 2),
        memory(18, -300, 500, 1),
    ]
}


def test_phases_are_before_in_and_after_the_engine_of_autograd() -> None:
    recording = read_trace(TRACE, held=1000)
    assert [(event.operation, event.phase, event.library) for event in recording.events] == [
        ("conv2d", "forward", "PyTorch"),
        ("mkldnn_convolution", "forward", "oneDNN"),
        ("autograd::engine::evaluate_function: ConvolutionBackward0", "backward", "PyTorch"),
        ("convolution_backward", "backward", "PyTorch"),
        ("add_", "update", "PyTorch"),
    ]
    (step,) = recording.named(STEP)
    expected = {"input": 1, "forward": 3, "backward": 4, "communication": 0, "update": 1, "host": 1}
    assert wall_times(step, recording) == pytest.approx(expected)


def test_memory_counts_from_what_was_held_before() -> None:
    recording = read_trace(TRACE, held=1000)
    found, totals = memory_at_peak(recording.allocations, {"weights": 1000}, [10.0])
    assert totals is not None
    assert (totals.peak_bytes, totals.fragmentation) == (1800, None)
    assert (found["weights"], found["activations"], found["gradients"], found[UNEXPLAINED]) == (1000, 300, 500, 0)


def test_kernels_of_an_accelerator_come_before_operations_of_the_cpu() -> None:
    trace = {"traceEvents": [*TRACE["traceEvents"], part("cudnn_fused_kernel", 12, 1, "kernel", 7)]}
    (event,) = read_trace(trace, held=0).events
    assert (event.operation, event.library, event.lane) == ("cudnn_fused_kernel", "cuDNN", "7")
