"""The reader of recordings of PyTorch's profiler (a trace in Chrome's format).

Operations nest: `aten::conv2d` holds the operation of the library that computes it. PyTorch names
no phases: what autograd's engine runs is the backward pass, what comes before it in a step the
forward pass, and what comes after it the update.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from replica.measure.profile.recorded.phases import FETCH, STEP, UNCOUNTED
from replica.measure.profile.recorded.recording import Allocation, Event, Recording, Span

MICROSECONDS = 1e-6

ENGINE = "autograd::engine"
COMMUNICATION = ("gloo:", "nccl:", "c10d::", "all_reduce", "allreduce")
LIBRARIES = {"mkldnn": "oneDNN", "cudnn": "cuDNN", "cublas": "cuBLAS", "nccl": "NCCL", "gloo": "Gloo"}

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CPU = 0
"""Number of the CPU among PyTorch's types of devices."""


def read_trace(trace: Mapping[str, Any], held: int) -> Recording:
    """Read operations of the accelerator, or of the CPU if there is none; spans; allocations.

    The profiler counts the CPU's memory from its own begin, when `held` bytes were in use.
    """
    found = [each for each in trace["traceEvents"] if "ts" in each]
    spans = tuple(
        Span(each["name"], *_times(each))
        for each in found
        if each.get("cat") == "user_annotation" and each["name"] in (STEP, UNCOUNTED, FETCH)
    )
    operations = [each for each in found if each.get("cat") == "cpu_op"]
    phases = _Phases(spans, operations)
    kernels = [each for each in found if each.get("cat") in DEVICE]
    events = tuple(_event(each, phases) for each in kernels or operations)
    memory = [each for each in found if each["name"] == "[memory]"]
    return Recording(events, spans, tuple(_allocations(memory, phases, held)))


def _times(each: Mapping[str, Any]) -> tuple[float, float]:
    start = float(each["ts"]) * MICROSECONDS
    return start, start + float(each.get("dur", 0)) * MICROSECONDS


class _Phases:
    """The backward pass of each step, by the times of autograd's engine."""

    def __init__(self, spans: Iterable[Span], operations: Iterable[Mapping[str, Any]]) -> None:
        self._steps = sorted((span for span in spans if span.name != FETCH), key=lambda span: span.start_s)
        self._starts = [span.start_s for span in self._steps]
        self._fetches = [span for span in spans if span.name == FETCH]
        engine = sorted(_times(each) for each in operations if each["name"].startswith(ENGINE))
        self._backward = [_hull(engine, span) for span in self._steps]

    def at(self, moment_s: float) -> str:
        """The phase of a moment; outside of all steps, forward."""
        if any(span.start_s <= moment_s < span.end_s for span in self._fetches):
            return "input"
        number = bisect_right(self._starts, moment_s) - 1
        if number < 0 or self._backward[number] is None:
            return "forward"
        start, end = self._backward[number] or (0.0, 0.0)
        if moment_s < start:
            return "forward"
        return "backward" if moment_s < end else "update"


def _hull(engine: Sequence[tuple[float, float]], span: Span) -> tuple[float, float] | None:
    inside = [times for times in engine if span.start_s <= times[0] < span.end_s]
    return (inside[0][0], max(end for _, end in inside)) if inside else None


def _event(each: Mapping[str, Any], phases: _Phases) -> Event:
    name = str(each["name"])
    start, end = _times(each)
    lowered = name.lower()
    phase = "communication" if any(word in lowered for word in COMMUNICATION) else phases.at(start)
    library = next((library for word, library in LIBRARIES.items() if word in lowered), "PyTorch")
    return Event(start, end, "", name.removeprefix("aten::"), str(each["tid"]), library, phase)


def _allocations(memory: Iterable[Mapping[str, Any]], phases: _Phases, held: int) -> list[Allocation]:
    found = []
    peak = 0
    for each in sorted(memory, key=lambda item: float(item["ts"])):
        notes = each["args"]
        on_cpu = int(notes["Device Type"]) == CPU
        in_use = int(notes["Total Allocated"]) + (held if on_cpu else 0)
        peak = max(peak, in_use)
        size, moment = int(notes["Bytes"]), float(each["ts"]) * MICROSECONDS
        found.append(
            Allocation(
                moment_s=moment,
                taken=size > 0,
                address=int(notes["Addr"]),
                size=abs(size),
                requested=abs(size),
                node="",
                region="output",
                allocator="PyTorch's on the CPU" if on_cpu else "PyTorch's on the device",
                in_use=in_use,
                lifetime_peak=peak,
                fragmentation=None,
                phase=phases.at(moment),
            )
        )
    return found
