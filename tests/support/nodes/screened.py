"""Nodes of a screening that exist in this process alone: what they answer is known."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from aiperf.screening.messages import Present, Row, Sheet
from aiperf.wire.lines import encode
from primary.launchers import Exit, ReplicaProcess, ReplicaSpec

KIND = "NVIDIA H100 80GB HBM3"
RATES = {"matmul_32": 5e13, "matmul_16": 6e14, "triad": 2.9e12, "conv_forward": 3e14}

Answers = Callable[[int, bytes], bytes | None]
"""The line that a replica answers to a line; None: it hangs; b"": it has died."""


def sheet(generator: np.random.Generator, devices: int, noise: float, slow: dict[tuple[str, str], float]) -> Sheet:
    """A sheet of rates with noise; `slow` are factors by device and measure."""
    return Sheet(
        rows=tuple(
            Row(
                device=f"gpu{device}", kind=KIND, measure=measure, spread=noise,
                value=rate * (1 + noise * generator.normal()) * slow.get((f"gpu{device}", measure), 1.0),
            )
            for device in range(devices) for measure, rate in RATES.items()
        ),
        facts={f"gpu{device}": {"sm_clock": 1980.0 * slow.get((f"gpu{device}", "clock"), 1.0)}
               for device in range(devices)},
    )  # fmt: skip


def present(replica: int) -> bytes:
    return encode(Present(host=f"n{replica:03d}", node={"host": f"n{replica:03d}"}, devices=("gpu0",)))


def kind_of(line: bytes) -> str:
    document: dict[str, Any] = msgspec.json.decode(line)
    return str(document["type"])


class FakeProcess:
    """A replica's program whose lines a function makes."""

    def __init__(self, replica: int, answers: Answers) -> None:
        self._replica, self._answers, self._lines = replica, answers, list[bytes | None]()
        self.cancelled = False

    async def send(self, data: bytes) -> None:
        self._lines.append(self._answers(self._replica, data))

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


def answering(sheets: Callable[[int], Sheet], faults: dict[int, Sequence[bytes | None]]) -> Answers:
    """Answers of nodes with these sheets; `faults` are the lines of a node in place of its own."""
    left = {replica: list(lines) for replica, lines in faults.items()}

    def answer(replica: int, line: bytes) -> bytes | None:
        if left.get(replica):
            return left[replica].pop(0)
        return present(replica) if kind_of(line) == "screen" else encode(sheets(replica))

    return answer
