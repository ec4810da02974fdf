"""Replicas as the primary hears them: their messages, played over a socket by one process.

python -m benchmarks.scale.player SOCKET REPORTS_PER_HOUR HEARTBEAT_S

Every connection to the socket is a replica. It answers the handshake, and works on its jobs in real
time: each has `EPOCHS` epochs of `PARTS` messages, one of which reports a record. A replica begins
somewhere in its first job, so that jobs end all the time. When all have left, standard output gets
the milliseconds from writing the end of each job to the arrival of the next one, as JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
import time

from aiperf import __version__
from aiperf.wire.lines import MAX_LINE_BYTES, decode_to_agent, encode
from aiperf.wire.messages import (
    Alive,
    ClockReply,
    ClockRequest,
    Closing,
    Finished,
    Job,
    Message,
    Phase,
    Progress,
    Ready,
    Recorded,
    Started,
    Stop,
)

EPOCHS = 10
PARTS: tuple[Phase, ...] = ("train", "train", "train", "train", "evaluate", "checkpoint", "train")
"""Phases that an epoch reports; with the sixth comes its record."""

RECORD_PART = 5
NODE: dict[str, str | int | float | None] = {
    "os": "Linux-6.1.0-x86_64-with-glibc2.36",
    "cpu_model": "AMD EPYC 7763 64-Core Processor",
    "cpu_count": 128,
    "memory_bytes": 1 << 39,
    "python": "3.11.9",
    "aiperf": __version__,
    "tensorflow": "2.21.0",
    "keras": "3.15.0",
    "numpy": "2.3.5",
    "horovod": "0.28.1",
    "accelerators": 8,
    "accelerator": "NVIDIA H200",
    "accelerator_memory_bytes": 151 << 30,
    "accelerator_driver": "570.86.15",
}


class Player:
    """Plays all replicas; `delays_ms` are those of their jobs so far."""

    def __init__(self, reports_per_hour: float, heartbeat_s: float) -> None:
        self.delays_ms: list[float] = []
        self.done = asyncio.Event()
        self._pause_s = 3600 / reports_per_hour
        self._heartbeat_s = heartbeat_s
        self._random = random.Random(1)
        self._replicas = self._present = 0

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Play one replica until the primary leaves or stops it."""
        number = self._replicas
        self._replicas, self._present = number + 1, self._present + 1
        replica = _Replica(writer, number)
        replica.send(
            Ready(
                writer=f"replica-{number:04d}-1",
                version=__version__,
                accelerators=8,
                node={"host": f"node-{number:04d}", **NODE},
            )
        )
        beats = asyncio.create_task(self._beat(replica))
        work: asyncio.Task[None] | None = None
        while line := await reader.readline():
            message = decode_to_agent(line)
            if isinstance(message, ClockRequest):
                replica.send(ClockReply(utc_ms=time.time_ns() // 1_000_000))
            elif isinstance(message, Job):
                if replica.ended_s is not None:
                    self.delays_ms.append((time.monotonic() - replica.ended_s) * 1000)
                work = asyncio.create_task(self._work(replica, message.trial))
            elif isinstance(message, Stop):
                replica.send(Closing(trial=None, sequence=None, digest=None))
                break
        beats.cancel()
        if work is not None:
            work.cancel()
        writer.close()
        self._present -= 1
        if self._present == 0:
            self.done.set()

    async def _beat(self, replica: _Replica) -> None:
        await asyncio.sleep(self._random.uniform(0, self._heartbeat_s))
        while True:
            replica.send(Alive())
            await asyncio.sleep(self._heartbeat_s)

    async def _work(self, replica: _Replica, trial: int) -> None:
        first = 0
        if replica.ended_s is None:
            first = self._random.randrange(EPOCHS * len(PARTS))
            await asyncio.sleep(self._random.uniform(0, self._pause_s))
        replica.start(trial)
        for number in range(first, EPOCHS * len(PARTS)):
            replica.report(trial, *divmod(number, len(PARTS)))
            await asyncio.sleep(self._pause_s * self._random.uniform(0.5, 1.5))
        replica.finish(trial)


class _Replica:
    def __init__(self, writer: asyncio.StreamWriter, number: int) -> None:
        self.ended_s: float | None = None
        self._writer = writer
        self._number = number
        self._sequence = 0

    def send(self, message: Message) -> None:
        self._writer.write(encode(message))

    def start(self, trial: int) -> None:
        started = Started(
            trial=trial,
            architecture="0123456789abcdef",
            parent="fedcba9876543210",
            epochs=EPOCHS,
            depth=50,
            hyperparameters={"learning_rate": 0.1, "batch_size": 256},
            operations_per_image=24_000_000_000,
            weights=25_557_032,
        )
        self.send(started)

    def report(self, trial: int, epoch: int, part: int) -> None:
        self._sequence += 3
        if part == RECORD_PART:
            digest = hashlib.sha256(f"{self._number} {self._sequence}".encode()).hexdigest()
            self.send(Recorded(trial=trial, epoch=epoch + 1, sequence=self._sequence, digest=digest))
        self.send(
            Progress(
                trial=trial,
                phase=PARTS[part],
                epoch=epoch + (part >= RECORD_PART),
                epochs=EPOCHS,
                accuracy=0.7123,
                operations=10**15 * (len(PARTS) * epoch + part),
            )
        )

    def finish(self, trial: int) -> None:
        self._sequence += 2
        digest = hashlib.sha256(f"{self._number} {self._sequence}".encode()).hexdigest()
        self.ended_s = time.monotonic()
        self.send(Finished(trial=trial, completed=True, reason="", sequence=self._sequence, digest=digest))


async def main(path: str, reports_per_hour: float, heartbeat_s: float) -> None:
    """Play until all replicas have left."""
    player = Player(reports_per_hour, heartbeat_s)
    server = await asyncio.start_unix_server(player.play, path, limit=MAX_LINE_BYTES, backlog=4096)
    print("listening", flush=True)
    await player.done.wait()
    server.close()
    print(json.dumps(player.delays_ms))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
