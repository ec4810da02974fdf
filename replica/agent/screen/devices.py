"""The devices of a replica's share of a node, each measured by a process of its own.

Meanwhile facts are sampled that may explain a low rate.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from aiperf.answers import in_one_line
from aiperf.clock import Clock
from aiperf.config.frameworks import TRAITS
from aiperf.config.settings import RunConfig
from aiperf.errors import EXIT_DONE, MessageError
from aiperf.host import this_host
from aiperf.machine.accelerators import BFLOAT16_CPU_FLAGS, AcceleratorSamples, visible_devices
from aiperf.machine.health import held_by_quota_s
from aiperf.machine.node import shared_cpus
from aiperf.machine.vendors import Accelerator, vendor_of_node
from aiperf.processes import describe_exit, end_group, python_module, spawn
from aiperf.run_directory.micro_results import SUITE_PRECISIONS
from aiperf.screening.judgement import DCGM
from aiperf.screening.messages import CPUS, STORAGE, WORKING, Row, ScreenRequest, kind_of_cpus, read_row, write_request

log = logging.getLogger(__name__)

END_GRACE_S = 2.0
LAST_BYTES = 400
"""Bytes of a process's errors that its row shows."""
THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables by which the stacks' libraries bound their threads."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device to measure, and the environment in which a process sees it alone."""

    name: str
    kind: str
    short: str | None
    """Precision of 16 bits of its arithmetic units."""
    environment: Mapping[str, str]
    cpus: int
    index: int | None = None
    """Number of an accelerator in its driver."""


def devices_of(accelerators: tuple[Accelerator, ...], share: int) -> tuple[Device, ...]:
    """The accelerators of a share of the node, then its CPUs."""
    host, cpus = this_host(), max(1, shared_cpus() // share)
    found = [
        Device(
            f"gpu{each.index}", each.name, SUITE_PRECISIONS[each.precision], visible_devices([each]), cpus, each.index
        )
        for each in accelerators
    ]
    short = "bfloat16" if host.cpu_flags() & BFLOAT16_CPU_FLAGS else None
    threads = dict.fromkeys(THREADS, str(cpus))
    return (*found, Device(CPUS, kind_of_cpus(host.cpu_model(), cpus), short, {**_hidden(), **threads}, cpus))


def _hidden() -> dict[str, str]:
    """The environment in which a process sees no accelerator."""
    vendor = vendor_of_node()
    pairs = (word.partition("=") for word in (vendor.hides.split() if vendor is not None else ()))
    return {name: value.strip("'") for name, _, value in pairs}


async def measure(devices: tuple[Device, ...], request: ScreenRequest) -> list[Row]:
    """The rows of all devices, which begin together once all are ready.

    The CPUs are measured alone afterwards: they would take the accelerators' processes their time.
    """
    together = [each for each in devices if each.index is not None]
    rows = [row for found in await _at_once(together, request) for row in found]
    return rows + [row for found in await _at_once([d for d in devices if d.index is None], request) for row in found]


async def _at_once(devices: list[Device], request: ScreenRequest) -> list[list[Row]]:
    ready = asyncio.Barrier(len(devices)) if devices else None
    words = [command(each, request.config, request.quick) for each in devices]
    return await asyncio.gather(
        *(rows_of(each, own, b"begin\n", ready) for each, own in zip(devices, words, strict=True))
    )


async def measure_storage(replica: int, accelerators: tuple[Accelerator, ...], request: ScreenRequest) -> list[Row]:
    """The rows of the file systems; images are decoded as next to the first accelerator."""
    # TensorFlow's input would take a GPU's memory.
    hides = TRAITS[request.config.training.framework].pipeline == "tensorflow"
    device = Device(STORAGE, STORAGE, None, _hidden() if hides else visible_devices(accelerators[:1]), 1)
    words = python_module("replica.measure.screen.storage", "--replica", str(replica))
    return await rows_of(device, words, write_request(request), None)


def command(device: Device, config: RunConfig, quick: bool) -> tuple[str, ...]:
    """The command line of the process of a device."""
    return python_module(
        "replica.measure.screen",
        "--device",
        device.name,
        "--kind",
        device.kind,
        "--stack",
        config.micro.stack or config.training.framework,
        "--cpus",
        str(device.cpus),
        *(("--short", device.short) if device.short else ()),
        *(("--quick",) if quick else ()),
    )


async def rows_of(device: Device, words: tuple[str, ...], begin: bytes, ready: asyncio.Barrier | None) -> list[Row]:
    """The rows of a process, which gets `begin` when all are ready."""
    process = await spawn(words, None, device.environment)
    assert process.stderr is not None
    # Read all the while: a process whose pipe is full would wait in the middle of its measures.
    errors = asyncio.create_task(_end_of(process.stderr))
    rows: list[Row] = []
    try:
        await _collect(process, ready, begin, rows)
        code = await process.wait()
    except (MessageError, ValueError) as error:
        return [*rows, _problem(device, str(error))]
    finally:
        with contextlib.suppress(ProcessLookupError):
            # Shielded: a program that is cancelled must not leave work on the accelerators.
            await asyncio.shield(end_group(process, END_GRACE_S))
    if code == EXIT_DONE:
        return rows
    return [*rows, _problem(device, f"its process ended with {describe_exit(code)}; {in_one_line(await errors)}")]


async def _collect(
    process: asyncio.subprocess.Process, ready: asyncio.Barrier | None, begin: bytes, rows: list[Row]
) -> None:
    """Let the process begin when all are ready, and append its rows until its output ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    first = await process.stdout.readline()
    if ready is not None:
        await ready.wait()  # also for a process that has ended: the others wait for all
    if first:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(begin)
            await process.stdin.drain()
    while line := await process.stdout.readline():
        rows.append(read_row(line))


async def _end_of(stream: asyncio.StreamReader) -> str:
    """The last bytes of a stream, all of which is read."""
    kept = b""
    while part := await stream.read(1 << 16):
        kept = (kept + part)[-LAST_BYTES:]
    return kept.decode(errors="replace")


def _problem(device: Device, text: str) -> Row:
    log.error("%s: %s", device.name, text)
    return Row(device=device.name, kind=device.kind, measure=WORKING, problem=text[:1000])


SAMPLE_S = 0.5
"""Seconds between two samples of the accelerators."""


class Watch:
    """Counts of the kernel and reports of the drivers while devices are measured."""

    def __init__(self, clock: Clock, devices: tuple[Device, ...]) -> None:
        self._clock, self._devices = clock, devices
        self._read = AcceleratorSamples()
        self._samples: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._throttled, self._load = held_by_quota_s(), this_host().load()
        self._began_s = clock.monotonic_s()

    async def sample(self) -> None:
        """Sample the accelerators until this is cancelled."""
        while any(device.index is not None for device in self._devices):
            for found in (await asyncio.to_thread(self._read)).get("accelerators", []):
                for field in DCGM.keys() & found.keys():
                    self._samples[found["index"]][DCGM[field]].append(found[field])
            await self._clock.sleep(SAMPLE_S)

    def facts(self) -> dict[str, dict[str, float]]:
        """Facts by device, by the names of `aiperf.screening.judgement.FACTS`."""
        return {device.name: dict(self._facts(device)) for device in self._devices}

    def _facts(self, device: Device) -> Iterator[tuple[str, float]]:
        if device.index is not None:
            for name, values in self._samples[device.index].items():
                yield name, max(values) if name == "temperature" else median(values)
            return
        wall_s = max(1e-9, self._clock.monotonic_s() - self._began_s)
        yield "held_by_quota", (held_by_quota_s() - self._throttled) / wall_s
        yield "load_before", self._load / device.cpus
