"""The primary at scale: its CPU, the delay of its jobs and its start, by the number of replicas.

python -m benchmarks.scale.primary [--replicas 16,512,1024,4096] [--seconds 60] [--format json]

The real dispatcher, links, witness and history writer, which writes to the scratch folder with its
fsyncs. The replicas' messages come from another process (`benchmarks.scale.player`) in real time:
176 reports a replica and hour, as a rehearsal counted them, and a heartbeat every 10 s. Time is not
compressed: a window of `--seconds` begins some seconds after the release, with every replica
somewhere in a job. Replicas are connections to that process: the start of agents is not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiperf.clock import SystemClock
from aiperf.config.settings import RunConfig, load_config
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import Patience
from aiperf.wire.lines import MAX_LINE_BYTES
from primary.context import RunContext
from primary.dispatcher import Dispatcher
from primary.display.state import FailSafeDisplay, PatientDisplay
from primary.display.terminal import LineDisplay
from primary.launchers.contract import Exit, ReplicaProcess, ReplicaSpec
from primary.native import NativeManager
from primary.work import open_work

REPLICAS = (16, 512, 1024, 4096)
REPORTS_PER_HOUR = 176.0
HEARTBEAT_S = 10.0
SETTLE_S = 5.0
"""From the release to the window: the first jobs are out then."""

LATENESS_S = 0.05
"""From one look at the event loop's lateness to the next."""


class Connection(ReplicaProcess):
    """A played replica; counts what comes from it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, measured: Measured) -> None:
        self._reader = reader
        self._writer = writer
        self._measured = measured

    async def send(self, data: bytes) -> None:
        """Write to the replica."""
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        """Read a line of the replica."""
        line = await self._reader.readline()
        self._measured.messages += 1
        return line

    async def wait(self) -> Exit:
        """End at once: the connection is closed already."""
        return Exit(0)

    async def explain(self) -> str:
        """Nothing."""
        return ""

    async def cancel(self, grace_s: float) -> Exit:
        """Close the connection."""
        self._writer.close()
        return Exit(0)


class Measured(NativeManager):
    """Sees the release, and connects the replicas."""

    per_node = 1

    def __init__(self, socket: str) -> None:
        self.messages = 0
        self.is_released = asyncio.Event()
        self.start_cpu_s = 0.0
        self._socket = socket
        self._connecting = asyncio.Semaphore(64)

    def released(self, left_s: float) -> None:
        """Note the CPU time of the start."""
        self.start_cpu_s = time.process_time()
        self.is_released.set()

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Connect to a played replica."""
        async with self._connecting:
            reader, writer = await asyncio.open_unix_connection(self._socket, limit=MAX_LINE_BYTES)
        return Connection(reader, writer, self)


async def _lateness(found: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        began_s = loop.time()
        await asyncio.sleep(LATENESS_S)
        found.append((loop.time() - began_s - LATENESS_S) * 1000)


async def conduct(paths: RunPaths, config: RunConfig, socket: str, seconds: float, profile: Path | None) -> None:
    """Conduct a run until its window is over, and print what was measured as JSON."""
    measured, clock, records = Measured(socket), SystemClock(), Patience(60)
    display = PatientDisplay(FailSafeDisplay(LineDisplay(io.StringIO(), clock)))
    late: list[float] = []
    with Claim.acquire(paths.claims, clock) as claim, HistoryWriter(paths, "primary", clock, records) as writer:
        context = RunContext(config, paths, measured, writer, display, open_work(config), claim, measured)
        dispatcher = Dispatcher(context)
        writer.in_background(lambda _: dispatcher.interrupt())
        began_s = time.process_time()
        run, looks = asyncio.create_task(dispatcher.run()), asyncio.create_task(_lateness(late))
        await measured.is_released.wait()
        start_late_ms = max(late, default=0.0)
        await asyncio.sleep(SETTLE_S)
        # The lateness of the start is a figure of its own.
        late.clear()
        with cProfile.Profile() if profile is not None else io.StringIO() as profiler:
            wall_s, cpu_s, messages = time.monotonic(), time.process_time(), measured.messages
            await asyncio.sleep(seconds)
            wall_s, cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s
            messages = measured.messages - messages
        if profile is not None and isinstance(profiler, cProfile.Profile):
            profiler.dump_stats(profile)
        looks.cancel()
        found = {
            "share": cpu_s / wall_s,
            "us": cpu_s / max(1, messages) * 1e6,
            "messages_per_s": messages / wall_s,
            "start_cpu_s": measured.start_cpu_s - began_s,
            "late_p99_ms": percentile(late, 0.99),
            "late_most_ms": max(late),
            "start_late_ms": start_late_ms,
        }
        dispatcher.interrupt()
        await run
    print(json.dumps(found))


def percentile(values: list[float], share: float) -> float:
    """The value that this share of the values does not exceed; nan without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def settings(replicas: int) -> RunConfig:
    """The configuration of a played run."""
    overrides = {"run.dataset": "digits", "run.replicas": replicas, "training.trainer": "simulated"}
    return load_config(overrides={**overrides, "run.duration": "12h", "run.stop_grace": 60})


def play(scratch: Path, replicas: int, seconds: float, profile: Path | None = None) -> dict[str, float]:
    """Measure one number of replicas."""
    folder = scratch / f"primary-{replicas}"
    paths = RunPaths(folder / "run")
    paths.create()
    write_manifest(paths, settings(replicas))
    with tempfile.TemporaryDirectory() as name:
        socket = f"{name}/socket"
        command = [sys.executable, "-m", "benchmarks.scale.player", socket, str(REPORTS_PER_HOUR), str(HEARTBEAT_S)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as player:
            assert player.stdout is not None
            # Its only line before the end says that it listens.
            player.stdout.readline()
            words = [str(paths.root), str(replicas), socket, str(seconds), *([str(profile)] if profile else [])]
            result = subprocess.run(
                [sys.executable, "-m", "benchmarks.scale.primary", "--conduct", *words],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            delays = json.loads(player.stdout.read())
    found: dict[str, float] = json.loads(result.stdout)
    return {**found, "dispatch_p99_ms": percentile(delays, 0.99), "dispatched": len(delays)}


def measure(scratch: Path, replicas: tuple[int, ...] = REPLICAS[-1:], seconds: float = 60.0) -> dict[str, float]:
    """The figures of the primary, by number of replicas.

    `primary_core_share_N`: CPU of all its threads as a share of one core. `dispatch_p99_ms_N`: from
    the player's report of a trial's end to the arrival of the next job there.
    `primary_start_cpu_s_N`: CPU seconds to the release.
    """
    found = {}
    for number in replicas:
        result = play(scratch, number, seconds)
        found[f"primary_core_share_{number}"] = round(result["share"], 4)
        found[f"dispatch_p99_ms_{number}"] = round(result["dispatch_p99_ms"], 1)
        found[f"primary_start_cpu_s_{number}"] = round(result["start_cpu_s"], 3)
        found[f"primary_message_us_{number}"] = round(result["us"], 1)
        found[f"primary_messages_per_s_{number}"] = round(result["messages_per_s"], 1)
        found[f"loop_late_p99_ms_{number}"] = round(result["late_p99_ms"], 1)
        found[f"start_late_ms_{number}"] = round(result["start_late_ms"], 1)
        found[f"dispatched_{number}"] = result["dispatched"]
    return found


def main() -> int:
    """Measure and print; with `--conduct`, be the primary that is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", default=",".join(map(str, REPLICAS)), help="numbers of replicas (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="window (default: %(default)s)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--conduct", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--profile", type=Path, help="write a profile of the largest number's window")
    arguments = parser.parse_args()
    if arguments.conduct:
        root, replicas, socket, seconds, *profile = arguments.conduct
        place = Path(profile[0]) if profile else None
        asyncio.run(conduct(RunPaths(Path(root)), settings(int(replicas)), socket, float(seconds), place))
        return 0
    numbers = tuple(map(int, arguments.replicas.split(",")))
    with tempfile.TemporaryDirectory() as name:
        if arguments.profile:
            found = play(Path(name), numbers[-1], arguments.seconds, arguments.profile)
        else:
            found = measure(Path(name), numbers, arguments.seconds)
    if arguments.format == "json":
        print(json.dumps(found, indent=2))
    else:
        for key, value in found.items():
            print(f"{key:<32} {value:10.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
