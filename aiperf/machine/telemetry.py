"""Samples of a node's load and power, one line of JSON each.

Accelerator fields have the names of NVIDIA's DCGM. Telemetry must not harm a run: a source that
fails is left out of its sample, and lines that cannot be written are kept for later.

NVML does not count active multiprocessors and tensor cores: its use says that any kernel ran.
DCGM's own program is asked for them (`dcgmi dmon`), which needs its host engine on the node. Both
are there or not; nothing is started.
"""

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from aiperf.answers import ask_and_wait
from aiperf.clock import Clock, format_utc
from aiperf.files import append_once
from aiperf.host import this_host
from aiperf.machine import health
from aiperf.machine.accelerators import AcceleratorSamples
from aiperf.machine.energy_counters import CpuPackages, cpu_packages
from aiperf.machine.vendors import Fields
from aiperf.machine.vendors.contract import number, text
from aiperf.run_directory.checksums import sealed
from aiperf.run_directory.paths import RunPaths

log = logging.getLogger(__name__)

PROGRAM = "dcgmi"

ACTIVE: Mapping[str, str] = {"1002": "DCGM_FI_PROF_SM_ACTIVE", "1004": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"}
"""Fields by their numbers (dcgm_fields.h): shares of cycles, from 0 to 1."""

EVERY_MS, ROWS = 200, 2
"""Rows that are asked for: the first one after a while without a question may have no value."""

MOST_S = 3.0

_GPU = re.compile(r"\|\s*(\d+)\s*\|")
_UUID = re.compile(r"Device UUID:\s*(\S+)")


class Dcgm:
    """The activity of each GPU by its UUID. Once the program fails it is not asked again."""

    def __init__(self) -> None:
        self._uuids: dict[str, str] | None = None

    def __call__(self) -> Fields:
        """`dcgm`: the fields of each GPU; empty without DCGM."""
        if self._uuids is None:
            self._uuids = uuids_in(self._ask("discovery", "-l"))
        if not self._uuids:
            return {}
        shown = self._ask("dmon", "-e", ",".join(ACTIVE), "-d", str(EVERY_MS), "-c", str(ROWS))
        found = activity_in(shown)
        known = [{"uuid": self._uuids[gpu], **fields} for gpu, fields in found.items() if gpu in self._uuids]
        return {"dcgm": known} if known else {}

    def _ask(self, *words: str) -> str:
        answer = ask_and_wait((PROGRAM, *words), MOST_S)
        if answer.fine:
            return answer.output
        self._uuids = {}
        if not answer.missing:
            log.info("DCGM is not asked again: %s", answer.reason)
        return ""


def uuids_in(shown: str) -> dict[str, str]:
    """The UUID of each GPU by DCGM's number for it, in what `dcgmi discovery -l` prints."""
    found, gpu = dict[str, str](), ""
    for line in shown.splitlines():
        begins = _GPU.match(line)
        gpu = begins[1] if begins else gpu
        if gpu and (uuid := _UUID.search(line)):
            found[gpu] = text(uuid[1])
    return found


def activity_in(shown: str) -> dict[str, Fields]:
    """The last values of each GPU in what `dcgmi dmon` prints for the fields of `ACTIVE`.

    Slices of GPUs and values that are not there are left out.
    """
    found: dict[str, Fields] = {}
    for line in shown.splitlines():
        words = line.split()
        if len(words) != 2 + len(ACTIVE) or words[0] != "GPU" or not words[1].isdecimal():
            continue
        for name, word in zip(ACTIVE.values(), words[2:], strict=True):
            value = number(float(word), 1.0) if re.fullmatch(r"\d\.\d+|[01]", word, re.ASCII) else None
            if value is not None:
                found.setdefault(words[1], {})[name] = value
    return found


VERSION = 1

MOST_UNWRITTEN = 1000
"""Lines that are kept while the file cannot be written; the oldest are given up first."""


def sample_cpu() -> Fields:
    """CPU time in use since the last call, over all CPUs, in percent."""
    return {"cpu_percent": psutil.cpu_percent()}


def sample_memory() -> Fields:
    """Main memory in use and in total, in bytes."""
    memory = this_host().memory()
    return {"memory_used_bytes": memory.limit - memory.available, "memory_total_bytes": memory.limit}


def sample_network() -> Fields:
    """Bytes over all interfaces since the node started."""
    counters = psutil.net_io_counters()
    return {"network_sent_bytes": counters.bytes_sent, "network_received_bytes": counters.bytes_recv}


def sample_disk() -> Fields:
    """Bytes of all local disks since the node started; empty if the node has none."""
    counters = psutil.disk_io_counters()
    if counters is None:
        return {}
    return {"disk_read_bytes": counters.read_bytes, "disk_written_bytes": counters.write_bytes}


class CpuPower:
    """Mean power of the CPU packages since the last call, from the kernel's energy counters."""

    def __init__(self, clock: Clock, counter: CpuPackages) -> None:
        self._clock = clock
        self._counter = counter
        self._last: tuple[float, Sequence[float] | None] | None = None

    def __call__(self) -> Fields:
        """Watts; empty at the first call, and if the kernel has no such counters."""
        now, energies_uj = self._clock.monotonic_s(), self._counter.read()
        before, self._last = self._last, (now, energies_uj)
        if before is None or before[1] is None or energies_uj is None or now <= before[0]:
            return {}
        return {"cpu_power_w": self._counter.joules(before[1], energies_uj) / (now - before[0])}


def default_sources(clock: Clock) -> tuple[Callable[[], Fields], ...]:
    """All sources of a sample; each may fail on a given node."""
    load = AcceleratorSamples(), sample_cpu, sample_memory, sample_network, sample_disk, CpuPower(clock, cpu_packages())
    return *load, *health.sources(), Dcgm()


class Telemetry:
    """Samples this node into one file, from a thread of its own."""

    def __init__(self, file: Path, interval_s: float, clock: Clock, header: Mapping[str, str | int]) -> None:
        self._file = file
        self._interval_s = interval_s
        self._clock = clock
        self._header = {"version": VERSION, "host": this_host().name(), "interval_s": interval_s, **header}
        self._sources = default_sources(clock)
        self._unwritten: deque[bytes] = deque(maxlen=MOST_UNWRITTEN)
        self._refused = False
        self._failed = set[type[Exception]]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        """Begin sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and end."""
        self._stop.set()
        # A source that hangs must not hold up the end of the process.
        self._thread.join(timeout=5)

    def _run(self) -> None:
        self._write(self._header)
        self.sample()  # starts the sources that count since their last call
        # An event instead of the clock's pause: the end of the run must not wait for the interval.
        while not self._stop.wait(self._interval_s):
            self._write(self.sample())
        self._write(self.sample())

    def _write(self, fields: Mapping[str, Any]) -> None:
        """Append a line, and before it those that could not be written so far."""
        self._unwritten.append(sealed(fields) + b"\n")
        try:
            # Without patience: a node's samples are not worth a wait, and are kept for the next
            # attempt.
            append_once(self._file, b"".join(self._unwritten))
        except OSError as error:
            if not self._refused:
                log.warning("telemetry cannot be written: %s", error)
            self._refused = True
        else:
            self._refused = False
            self._unwritten.clear()

    def sample(self) -> Fields:
        """The time and the fields of all sources; a source that fails is left out."""
        fields: Fields = {"time": format_utc(self._clock.utc_ms())}
        for source in self._sources:
            try:
                fields.update(source())
            except Exception as error:  # a library may raise anything: one source never costs the others
                if type(error) not in self._failed:
                    self._failed.add(type(error))
                    log.info("a source of telemetry is left out: %s: %s", type(error).__name__, error)
        return fields


def start_telemetry(paths: RunPaths, writer: str, clock: Clock, interval_s: float, replica: int) -> Telemetry:
    """Sample this node until the process ends.

    `writer` names the writer of the history list whose clock correction also applies to the
    samples. Processes of one node may share a file: each appends whole lines.
    """
    file = paths.telemetry_file(f"{writer}-{this_host().name()}")
    sampler = Telemetry(file, interval_s, clock, {"writer": writer, "replica": replica})
    sampler.start()
    return sampler


@contextmanager
def telemetry(paths: RunPaths, writer: str, clock: Clock, interval_s: float, replica: int) -> Iterator[None]:
    """Sample this node while the block runs; an interval of 0 samples nothing."""
    if interval_s <= 0:
        yield
        return
    sampler = start_telemetry(paths, writer, clock, interval_s, replica)
    try:
        yield
    finally:
        sampler.stop()
