"""Hardware counters: of the CPU by `perf stat`, of GPUs as far as the driver allows.

Where a counter cannot be read, the reason is given in words.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.clock import SystemClock
from aiperf.machine.accelerators import find_accelerators

EVENTS = (
    "task-clock", "context-switches", "page-faults", "cycles", "instructions", "cache-references", "cache-misses",
    "branch-misses",
)  # fmt: skip

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
"""Beyond, users may not count their own processes (kernel.org, perf-security)."""

DRIVER = Path("/proc/driver/nvidia/params")

READY_S = 0.2
"""Time for `perf` to attach itself; counts of the steps before are lost."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of the recorded steps by the name of the counter."""

    values: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    """Reasons by the name of the counter, or of the device."""

    @property
    def floating_point(self) -> float | None:
        """Operations in single precision; None if they were not counted."""
        known = [self.values[name] * each for name, each in FLOATING_POINT.items() if name in self.values]
        return sum(known) if known else None


class CpuCounters:
    """Counts this process while it is inside `counting`; `found` is known afterwards."""

    def __init__(self) -> None:
        self.found = Counters(missing={"cpu": "not counted"})

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count all threads of this process."""
        reason = why_not()
        if reason is not None:
            self.found = Counters(missing={"cpu": reason})
            yield
            return
        events = [*EVENTS, *(name for name in FLOATING_POINT if _known(name))]
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as output:
            command = [*STAT, "-x", ";", "-e", ",".join(events), "-o", output.name, "-p", str(os.getpid())]
            counter = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}
            )
            SystemClock().pause(READY_S)
            try:
                yield
            finally:
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
    if level > MOST_PARANOID and os.geteuid() != 0:
        return f"not permitted: kernel.perf_event_paranoid is {level}; {MOST_PARANOID} or less allows it"
    return None


def _known(event: str) -> bool:
    """True if this machine's `perf` knows an event: an unknown one ends it."""
    done = subprocess.run([*STAT, "-e", event, "--", sys.executable, "-V"], capture_output=True, check=False)
    return done.returncode == 0


def parse(text: str, problem: str = "") -> Counters:
    """Counts from the output of `perf stat -x ;`."""
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


def gpu_reason(driver: Path = DRIVER) -> str:
    """What stands between this program and the counters of the GPUs."""
    if not find_accelerators():
        return "no GPU"
    try:
        parameters = driver.read_text(encoding="ascii")
    except OSError:
        return "not an NVIDIA GPU: only its utilisation, memory, power and clocks are known"
    if "RmProfilingAdminOnly: 1" in parameters and os.geteuid() != 0:
        return "not permitted: the driver keeps counters for administrators (NVreg_RestrictProfilingToAdminUsers=1)"
    return "not counted: Nsight Compute (ncu) counts a kernel's operations and bytes; kernels' times are by CUPTI"
