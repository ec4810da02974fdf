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

from aiperf.answers import LOCALE, ask_and_wait
from aiperf.clock import SystemClock, format_utc
from aiperf.errors import AiperfError
from aiperf.host import CAP_PERFMON, CAP_SYS_ADMIN, this_host
from aiperf.machine.oom_order import prefer_oom_kill
from aiperf.network.operations import count
from aiperf.ranks import rank_numbers
from replica.measure.profile.executed import COUNTS, choose_count
from replica.measure.profile.executed.contract import work_by_kind
from replica.measure.profile.recorded.memory import BATCH, PROGRAM, STATE, WEIGHTS, memory_at_peak
from replica.measure.profile.recorded.operations import layer_times, operation_times
from replica.measure.profile.recorded.phases import FETCH, STEP, UNCOUNTED, blocks, wall_times
from replica.measure.profile.recorded.recording import Recording
from replica.measure.profile.recorders import RECORDERS, Recorder
from replica.measure.profile.settings import ProfileSettings, memory_limit
from replica.trainer.framework import Framework
from replica.trainer.frameworks import FRAMEWORKS

if TYPE_CHECKING:
    from replica.measure.profile.subject import Subject
import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from aiperf.machine.accelerators import find_accelerators, restricted_counters

# Hardware counters: of the CPU by `perf stat`, of GPUs as far as the driver allows.
#
# If a counter cannot be read, the reason is given in words.

PERF_TIMEOUT_S = 30.0

EVENTS = (
    "task-clock",
    "context-switches",
    "page-faults",
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branch-misses",
)

FLOATING_POINT = {
    "fp_arith_inst_retired.scalar_single": 1,
    "fp_arith_inst_retired.128b_packed_single": 4,
    "fp_arith_inst_retired.256b_packed_single": 8,
    "fp_arith_inst_retired.512b_packed_single": 16,
}
"""Operations of one count; a fused multiply-add counts twice (Intel SDM, volume 3, chapter 19)."""

STAT = ("perf", "stat")

PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
MOST_PARANOID = 2
"""Largest setting at which users may count their own processes (kernel.org, perf-security)."""


READY_S = 0.2
"""Seconds in which `perf` attaches itself; counts of the steps before are lost."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The counts of the recorded steps by the name of the counter."""

    values: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    """Reasons by the name of the counter, or of the device."""

    @property
    def floating_point(self) -> float | None:
        """The operations in single precision; None if they were not counted."""
        known = [self.values[name] * each for name, each in FLOATING_POINT.items() if name in self.values]
        return sum(known) if known else None


class CpuCounters:
    """The counters of this process inside of `counting`; `found` has the counts afterwards."""

    def __init__(self) -> None:
        self.found = Counters(missing={"cpu": "not counted"})

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Run a block in which all threads of this process are counted."""
        reason = why_not()
        if reason is not None:
            self.found = Counters(missing={"cpu": reason})
            yield
            return
        # Names of events are those of the processor: one that perf does not know would end all
        # counts.
        events = [*EVENTS, *(name for name in FLOATING_POINT if _known_of_counters(name))]
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as output:
            command = [*STAT, "-x", ";", "-e", ",".join(events), "-o", output.name, "-p", str(os.getpid())]
            counter = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **LOCALE}
            )
            SystemClock().pause(READY_S)
            try:
                yield
            finally:
                # perf writes its counts at an interrupt, and nothing when it is killed.
                counter.send_signal(signal.SIGINT)
                _, problem = counter.communicate()
            self.found = parse(output.read(), problem)


def why_not(paranoid: Path = PARANOID) -> str | None:
    """The reason why this user cannot count on this machine; None if there is none known."""
    if shutil.which("perf") is None:
        return "perf is not installed"
    try:
        level = int(paranoid.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return "this kernel has no performance events"
    # perf_event_open(2): either capability is enough, whatever the level.
    if level > MOST_PARANOID and not this_host().may(CAP_PERFMON, CAP_SYS_ADMIN):
        return f"not permitted: kernel.perf_event_paranoid is {level}; {MOST_PARANOID} or less allows it"
    return None


def _known_of_counters(event: str) -> bool:
    """True if this machine's `perf` knows an event: an unknown one ends it."""
    return ask_and_wait([*STAT, "-e", event, "--", sys.executable, "-V"], PERF_TIMEOUT_S).fine


def parse(text: str, problem: str = "") -> Counters:
    """Read counts from the output of `perf stat -x ;`."""
    values, missing = {}, {}
    for line in text.splitlines():
        fields = line.split(";")
        if line.startswith("#") or len(fields) < 3:
            continue
        number, name = fields[0], fields[2].removesuffix(":u")
        try:
            values[name] = float(number)
        except ValueError:
            missing[name] = _reason(number)
    if not values and not missing:
        missing["cpu"] = f"perf failed: {problem.strip().splitlines()[-1] if problem.strip() else 'it printed nothing'}"
    return Counters(values, missing)


def _reason(said: str) -> str:
    if said == "<not supported>":
        return "not supported: this machine shows no such counter, as most virtual machines"
    return said.strip("<>") or "no value"


def gpu_reason() -> str:
    """The reason why the counters of the GPUs cannot be read."""
    if not find_accelerators():
        return "no GPU"
    restricted = restricted_counters()
    if restricted is None:
        return "not an NVIDIA GPU: only its utilisation, memory, power and clocks are known"
    if restricted:
        return "not permitted: the driver keeps counters for administrators (NVreg_RestrictProfilingToAdminUsers=1)"
    return "not counted: Nsight Compute (ncu) counts a kernel's operations and bytes; kernels' times are by CUPTI"


WARM_UP_STEPS = 2

KIB = 1024
"""Bytes of a unit of `ru_maxrss`."""


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
    result = {**_described(settings, subject, seconds), **_facts(framework, collective.local_rank)}
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


def _facts(framework: Framework, local_rank: int) -> dict[str, str]:
    """Find what recorded the step, on which device, and when."""
    device = framework.device(local_rank)
    return {
        "software": framework.name(),
        "device": this_host().cpu_model() if device == "cpu" else device,
        "recorded": format_utc(SystemClock().utc_ms()),
    }


def _times(settings: ProfileSettings, subject: Subject, recording: Recording) -> dict[str, Any]:
    steps = recording.named(STEP)
    if not steps:
        raise AiperfError("the profiler recorded no training step")
    parts = [recording.within(step) for step in steps]
    events = [event for part in parts for event in part.events]
    walls = [wall_times(step, part) for step, part in zip(steps, parts, strict=True)]
    # The timeline is that of the step of median length.
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
    """Find counted and executed operations by kind of layer; the last call that trains."""
    steps = recording.named(STEP)
    events = [event for step in steps for event in recording.within(step).events]
    executed = COUNTS.load(choose_count(settings))(subject, batch, events, len(steps))
    kinds = work_by_kind(subject.architecture, subject.rule_set, settings.batch_size, executed)
    return {"work": [asdict(item) for item in kinds], "work_source": executed.source}


def _outside(subject: Subject, batch: tuple[Any, ...]) -> dict[str, float]:
    """Measure the seconds of an evaluated batch and of a checkpoint, outside of the steps."""
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
    """Find the counts per step, and the share of counted operations that the hardware executed."""
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
