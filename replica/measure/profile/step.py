"""A training step under its profiler: `python -m replica.measure.profile.step SETTINGS`.

SETTINGS is JSON (`ProfileSettings`); the result goes to its `output` as JSON. `aiperf profile`
calls it.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import tempfile
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aiperf.clock import SystemClock
from aiperf.errors import AiperfError
from aiperf.host import this_host
from aiperf.machine.memory import prefer_oom_kill
from aiperf.network.operations import count
from aiperf.ranks import rank_numbers
from replica.measure.profile.counters import Counters, CpuCounters, gpu_reason
from replica.measure.profile.executed import COUNTS, choose_count
from replica.measure.profile.executed.kinds import work_by_kind
from replica.measure.profile.limits import memory_limit
from replica.measure.profile.recorded.memory import BATCH, PROGRAM, STATE, WEIGHTS, memory_at_peak
from replica.measure.profile.recorded.operations import layer_times, operation_times
from replica.measure.profile.recorded.phases import FETCH, STEP, UNCOUNTED, blocks, wall_times
from replica.measure.profile.recorded.recording import Recording
from replica.measure.profile.recorders import RECORDERS, Recorder
from replica.measure.profile.settings import ProfileSettings
from replica.trainer.framework import Framework
from replica.trainer.frameworks import FRAMEWORKS

if TYPE_CHECKING:
    from replica.measure.profile.subject import Subject

WARM_UP_STEPS = 2

KIB = 1024
"""The unit of `ru_maxrss`."""


def run_profile(settings: ProfileSettings, framework: Framework) -> dict[str, Any]:
    """Train a few steps under the profiler, and as many under the hardware counters.

    Raises AiperfError if data or architecture do not fit.
    """
    from replica.measure.profile.subject import open_subject  # noqa: PLC0415  (loads Keras)

    limit = memory_limit()
    collective = framework.open_collective(settings.ranks)
    framework.configure(max(1, this_host().usable_cpus() // settings.ranks), collective.local_rank)
    subject = open_subject(settings, framework, collective)
    batch = _warm_up(subject)
    known = _known(subject, batch)
    recorder = RECORDERS.load(settings.framework)()
    seconds, recording = _record(subject, settings.steps, recorder, sum(known.values()))
    counters = CpuCounters()
    with counters.counting():
        for _ in range(settings.steps):
            subject.train(next(subject.batches))
    result = _described(settings, subject, seconds)
    result["outside"] = _outside(subject, batch)
    result.update(_times(settings, subject, recording))
    result.update(_memory(settings, subject, known, recording))
    result.update(_work(settings, subject, batch, recording))
    result["limit_bytes"] = limit
    result["counters"] = _counted(counters.found, settings, result["image_operations"])
    return result


def _warm_up(subject: Subject) -> tuple[Any, ...]:
    batch: tuple[Any, ...] = ()
    for _ in range(WARM_UP_STEPS):
        batch = next(subject.batches)
        subject.train(batch)
    subject.evaluate(batch)
    return batch


def _known(subject: Subject, batch: tuple[Any, ...]) -> dict[str, int]:
    from replica.measure.profile.networks.batches import size_of  # noqa: PLC0415  (loads Keras)

    return {
        WEIGHTS: _bytes(subject.model.variables),
        STATE: _bytes(subject.optimiser.variables),
        BATCH: size_of(batch),
    }


def _record(subject: Subject, wanted: int, recorder: Recorder, held: int) -> tuple[list[float], Recording]:
    """Seconds of each step but the first and the last, including the fetching of its batch.

    What ends an exchange is recorded a little after the step: another step waits for it.
    """
    clock, seconds = SystemClock(), list[float]()
    recorder.start()
    try:
        for number in range(wanted + 2):
            began = clock.monotonic_s()
            with recorder.span(STEP if 0 < number <= wanted else UNCOUNTED, number):
                with recorder.span(FETCH, number):
                    batch = next(subject.batches)
                subject.train(batch)
            seconds.append(clock.monotonic_s() - began)
    finally:
        recording = recorder.stop(held)
    return seconds[1:-1], recording


def _described(settings: ProfileSettings, subject: Subject, seconds: list[float]) -> dict[str, Any]:
    return {
        "architecture": subject.architecture.hash,
        "rule_set": subject.rule_set.name,
        "image_operations": count(subject.architecture, subject.rule_set).operations.total,
        "settings": settings.model_dump(exclude={"output"}),
        "steps": len(seconds),
        "step_s": statistics.median(seconds),
    }


def _times(settings: ProfileSettings, subject: Subject, recording: Recording) -> dict[str, Any]:
    steps = recording.named(STEP)
    if not steps:
        raise AiperfError("the profiler recorded no training step")
    parts = [recording.within(step) for step in steps]
    events = [event for part in parts for event in part.events]
    walls = [wall_times(step, part) for step, part in zip(steps, parts, strict=True)]
    middle = sorted(range(len(steps)), key=lambda number: steps[number].seconds)[len(steps) // 2]
    layers = layer_times(events, len(steps), subject.architecture, subject.rule_set, settings.batch_size)
    return {
        "operations": [asdict(item) for item in operation_times(events, len(steps))],
        "layers": [asdict(item) for item in layers],
        "phases": {phase: statistics.fmean(wall[phase] for wall in walls) for phase in walls[0]},
        "timeline": {
            "seconds": steps[middle].seconds,
            "blocks": [asdict(block) for block in blocks(steps[middle], parts[middle])],
        },
    }


def _work(settings: ProfileSettings, subject: Subject, batch: tuple[Any, ...], recording: Recording) -> dict[str, Any]:
    """Counted and executed operations by kind of layer; the last thing that trains."""
    steps = recording.named(STEP)
    events = [event for step in steps for event in recording.within(step).events]
    executed = COUNTS.load(choose_count(settings))(subject, batch, events, len(steps))
    kinds = work_by_kind(subject.architecture, subject.rule_set, settings.batch_size, executed)
    return {"work": [asdict(item) for item in kinds], "work_source": executed.source}


def _outside(subject: Subject, batch: tuple[Any, ...]) -> dict[str, float]:
    """Seconds of what a training does outside its steps: one batch evaluated, one checkpoint."""
    clock = SystemClock()
    began = clock.monotonic_s()
    subject.evaluate(batch)
    evaluated = clock.monotonic_s()
    with tempfile.TemporaryFile() as file:
        np.savez(file, *subject.steps.state())
    return {"evaluation": evaluated - began, "checkpoint": clock.monotonic_s() - evaluated}


def _memory(settings: ProfileSettings, subject: Subject, known: dict[str, int], recording: Recording) -> dict[str, Any]:
    steps = recording.named(STEP)
    own = [each for each in recording.allocations if each.moment_s <= steps[-1].end_s]
    purposes, totals = memory_at_peak(own, known, [step.start_s for step in steps])
    program = getattr(subject.steps, "program_bytes", lambda size: None)(settings.batch_size)
    if totals is None and program is not None:
        purposes[PROGRAM] = program
    return {
        "memory_bytes": purposes,
        "allocator": None if totals is None else asdict(totals),
        "process_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
    }


def _counted(found: Counters, settings: ProfileSettings, image_operations: int) -> dict[str, Any]:
    """Counts per step, and the share of the counted operations that the hardware executed."""
    missing = {**found.missing, "gpu": gpu_reason()}
    floating = found.floating_point
    return {
        "per_step": {name: value / settings.steps for name, value in found.values.items()},
        "missing": missing,
        "executed_operations": None if floating is None else floating / settings.steps,
        "counted_operations": settings.batch_size * image_operations,
    }


def _bytes(variables: list[Any]) -> int:
    return sum(prod(variable.shape) * np.dtype(str(variable.dtype)).itemsize for variable in variables)


def _profiled(settings: ProfileSettings) -> dict[str, Any]:
    framework = FRAMEWORKS.load(settings.framework)()
    try:
        return run_profile(settings, framework)
    except AiperfError:
        raise
    except Exception as error:
        if framework.kind_of(error) != "out_of_memory":
            raise
        raise AiperfError(f"out of memory: {str(error).splitlines()[0]}") from error


def main() -> int:
    """Profile as the first argument says; on failure give 1, with a message on standard error."""
    prefer_oom_kill(os.getpid())
    settings = ProfileSettings.model_validate_json(sys.argv[1])
    try:
        result = _profiled(settings)
    except AiperfError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    numbers = rank_numbers()
    if settings.ranks == 1 or numbers is None or numbers.rank == 0:
        Path(settings.output).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
