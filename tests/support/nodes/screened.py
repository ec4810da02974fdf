"""Nodes of a screening that exist in this process alone: what they answer is known."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.screening.messages import STORAGE, Exchanged, Listening, Present, Row, Sheet, Timed, read_meet
from aiperf.screening.outcome import Outcome
from aiperf.wire.lines import encode
from primary.launchers import Exit, ReplicaProcess, ReplicaSpec
from primary.screening.screen import Order, screen_by

KIND = "NVIDIA H100 80GB HBM3"
RATES = {"matmul_32": 5e13, "matmul_16": 6e14, "triad": 2.9e12, "conv_forward": 3e14}

Answers = Callable[[int, bytes], bytes | None]
"""The line that a replica answers to a line; None: it hangs; b"": it has died."""


def sheet(generator: np.random.Generator, devices: int, noise: float, slow: dict[tuple[str, str], float]) -> Sheet:
    """A sheet of rates with noise; `slow` are factors by device and measure."""
    return Sheet(
        rows=tuple(
            Row(
                device=f"gpu{device}",
                kind=KIND,
                measure=measure,
                spread=noise,
                value=rate * (1 + noise * generator.normal()) * slow.get((f"gpu{device}", measure), 1.0),
            )
            for device in range(devices)
            for measure, rate in RATES.items()
        ),
        facts={
            f"gpu{device}": {"sm_clock": 1980.0 * slow.get((f"gpu{device}", "clock"), 1.0)} for device in range(devices)
        },
    )


def present(replica: int) -> bytes:
    return encode(Present(host=f"n{replica:03d}", node={"host": f"n{replica:03d}"}, devices=("gpu0",)))


def met(line: bytes, slow_inside: float) -> bytes:
    """The answers to an order to meet, those of rank 0 are two; a factor of copies inside nodes."""
    order = read_meet(line)
    factor = slow_inside if order.inside else 1.0
    times = (
        Timed(collective="all_reduce", size=8, seconds=1e-5),
        Timed(collective="all_reduce", size=1 << 24, seconds=1e-3),
        Timed(collective="send_receive", size=1 << 24, seconds=1e-3 / factor),
    )
    come = encode(Listening(addresses=("10.0.0.1",), port=5000, host="n000")) if order.rank == 0 else b""
    return come + encode(Exchanged(library="nccl", times=times))


def kind_of(line: bytes) -> str:
    document: dict[str, Any] = msgspec.json.decode(line)
    return str(document["type"])


class FakeProcess:
    """A replica's program whose lines a function makes."""

    def __init__(self, replica: int, answers: Answers) -> None:
        self._replica, self._answers, self._lines = replica, answers, list[bytes | None]()
        self.cancelled = False

    async def send(self, data: bytes) -> None:
        answer = self._answers(self._replica, data)
        self._lines += answer.splitlines(keepends=True) if answer else [answer]

    async def receive(self) -> bytes:
        line = self._lines.pop(0)
        if line is None:
            await asyncio.Event().wait()
        return line or b""

    async def wait(self) -> Exit:
        return Exit(1)

    async def explain(self) -> str:
        return "its node is down"

    async def cancel(self, grace_s: float) -> Exit:
        self.cancelled = True
        return Exit(0)


class FakeLauncher:
    """Starts such replicas."""

    per_node = 1

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.processes: list[FakeProcess] = []

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        assert re.search(r"replica\.agent\.screen", " ".join(spec.command))
        self.processes.append(FakeProcess(spec.replica, self._answers))
        return self.processes[-1]


def stored(factor: float) -> Row:
    """A row of a node's storage."""
    return Row(device=STORAGE, kind=STORAGE, measure="data_read", value=2e9 * factor, spread=0.01)


def answering(
    sheets: Callable[[int], Sheet],
    faults: dict[int, Sequence[bytes | None]],
    slow_storage: Mapping[int, float] = MappingProxyType({}),
    slow_inside: Mapping[int, float] = MappingProxyType({}),
) -> Answers:
    """Answers of nodes with these sheets; `faults` are the lines of a node in place of its own."""
    left = {replica: list(lines) for replica, lines in faults.items()}

    def answer(replica: int, line: bytes) -> bytes | None:
        if left.get(replica):
            return left[replica].pop(0)
        if kind_of(line) == "meet":
            return met(line, slow_inside.get(replica, 1.0))
        if kind_of(line) == "measure_storage":
            return encode(Sheet(rows=(stored(slow_storage.get(replica, 1.0)),)))
        return present(replica) if kind_of(line) == "screen" else encode(sheets(replica))

    return answer


def screened(
    folder: Path,
    nodes: int,
    slow: Mapping[int, dict[tuple[str, str], float]] | None = None,
    faults: dict[int, Sequence[bytes | None]] | None = None,
    **more: Any,
) -> Outcome:
    """Screen such nodes with eight devices each; `slow` are factors by replica, device and measure.

    `more`: `devices` (number by replica), `limit_s`, `launcher_name`, `names` of devices, `fabric`,
    `slow_storage` and `slow_inside` (factors by replica).
    """
    generator = np.random.default_rng(1)
    launcher = FakeLauncher(
        answering(
            lambda replica: sheet(
                generator, more.get("devices", {}).get(replica, 8), 0.004, (slow or {}).get(replica, {})
            ),
            faults or {},
            more.get("slow_storage", {}),
            more.get("slow_inside", {}),
        )
    )
    launched = {"run.replicas": nodes, "run.launcher": more.get("launcher_name", "slurm"), "run.dataset": "digits"}
    order = Order(
        load_config(overrides=launched),
        folder,
        more.get("limit_s", 0.01),
        quick=True,
        devices=more.get("names", ()),
        fabric=more.get("fabric", False),
        storage="slow_storage" in more,
    )
    outcome = asyncio.run(screen_by(launcher, order, folder, SystemClock(), lambda _: None))
    assert all(process.cancelled for process in launcher.processes), "no program is left on a node"
    return outcome
