"""A trainer as the agent sees it: a group of ranks with one socket, of which only the trial depends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from aiperf.config.settings import RunConfig
from aiperf.errors import MessageError, TrialFailedError
from aiperf.messages import (
    MAX_LINE_BYTES,
    Begin,
    FromTrainer,
    Message,
    Phase,
    TrainerFailed,
    TrainerPhase,
    TrainerReady,
    TrainRequest,
    decode_from_trainer,
    encode,
)
from aiperf.processes import (
    describe_exit,
    end_group,
    end_processes_with,
    last_lines,
    peer_user,
    python_module,
    spawn_silent,
    tail,
)
from replica.trainer.settings import RankSettings, TelemetrySettings
from replica.trainer.starters import STARTERS, RankRequest, choose_starter
from replica.trainer.temporary import remove_temporary_files

END_GRACE_S = 5.0
"""How long ranks may take to end when told to."""

FAILURE_LINE = '{"type":"failed"'


@dataclass(frozen=True)
class RankSetup:
    """How the ranks of this replica are started, whatever they train."""

    config: RunConfig
    ranks: int = 1
    cpu_threads: int = 1
    hosts: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    telemetry: TelemetrySettings | None = None

    def command(self, channel: str) -> list[str]:
        """The command line that starts all ranks. Raises ValueError where the starter cannot."""
        settings = RankSettings(
            channel=channel, ranks=self.ranks, cpu_threads=self.cpu_threads, telemetry=self.telemetry
        )
        rank: tuple[str, ...] = python_module("replica.trainer", settings.model_dump_json())
        if self.config.training.trainer == "simulated":
            simulated = self.config.simulated.model_dump_json()
            alone = settings.model_copy(update={"ranks": 1}).model_dump_json()
            return [*python_module("replica.trainer.simulated", alone, simulated)]
        starter = choose_starter(self.config.replica.rank_starter, self.ranks, len(self.hosts))
        return STARTERS.load(starter)(RankRequest(rank, self.ranks, self.hosts, self.environment))


class TrainerProcess:
    """The ranks of one training, in a process group of their own. Made by `start`."""

    def __init__(self, log: Path, several: bool) -> None:
        self.log = log
        self._several = several
        self.phase: Phase = "start"
        """Where the preparation is."""
        self.listener: Callable[[TrainerPhase], None] | None = None
        """Who is told the phases of the preparation."""
        self.prepared_s: float | None = None
        """How long the preparation took."""
        self._name = f"aiperf-{secrets.token_hex(16)}"
        self._connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()
        self._process: asyncio.subprocess.Process
        self._server: asyncio.Server
        self._started_ms = time.monotonic_ns() // 1_000_000

    @classmethod
    async def start(cls, setup: RankSetup, request: TrainRequest, log: Path) -> Self:
        """Start the ranks; rank 0 gets the request as soon as it is there. Raises TrialFailedError ("start")."""
        self = cls(log, setup.ranks > 1)
        command: list[str] = []
        self._server = await asyncio.start_unix_server(self._welcome(request), f"\0{self._name}", limit=MAX_LINE_BYTES)
        try:
            command = setup.command(self._name)
            self._process = await spawn_silent(command, log, setup.environment)
        except (OSError, ValueError) as error:
            self._server.close()
            raise TrialFailedError("start", f"{command[0] if command else 'ranks'}: {error}") from error
        return self

    def _welcome(self, request: TrainRequest) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            end: socket.socket = writer.get_extra_info("socket")
            if self._connected.done() or peer_user(end) != os.getuid():
                writer.close()
                return
            writer.write(encode(request))
            self._connected.set_result((reader, writer))

        return connected

    @property
    def pid(self) -> int:
        """Process id of the starter or the only rank, which is the process group of all on this node."""
        return self._process.pid

    async def until_ready(self, silence_s: float) -> None:
        """Wait until all is prepared. Raises TrialFailedError as `messages` does."""
        async for message in self.messages(silence_s):
            if isinstance(message, TrainerReady):
                self.prepared_s = (message.monotonic_ms - self._started_ms) / 1000
                return
            if isinstance(message, TrainerPhase):
                self.phase = message.phase
                if self.listener is not None:
                    self.listener(message)
        raise TrialFailedError("protocol", "the trainer ended without saying how")

    async def begin(self, message: Begin) -> None:
        """Let the prepared training begin."""
        await self._send(message)

    async def _send(self, message: Message) -> None:
        _, writer = await self._connected
        with contextlib.suppress(ConnectionError):  # a dead trainer is seen by its end
            writer.write(encode(message))
            await writer.drain()

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        """What the trainer tells, until its socket ends.

        Raises TrialFailedError where it fails (with its own reason), is silent for `silence_s` ("hang"), says what
        is no message ("protocol"), or dies ("crash", or what another rank has written), with the end of its log.
        """
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    line = await self._next_line()
                if not line:
                    break
                message = decode_from_trainer(line)
            except TimeoutError:
                raise TrialFailedError("hang", f"no report for {silence_s:.0f} s; {self._tail()}") from None
            except (MessageError, ValueError) as error:
                raise TrialFailedError("protocol", f"{error}; {self._tail()}") from None
            if isinstance(message, TrainerFailed):
                raise await self._failure(message.kind, message.reason)
            yield message
        code = await self._process.wait()
        if code != 0:
            raise await self._failure("crash", f"the trainer ended with {describe_exit(code)}; {self._tail()}")

    async def _next_line(self) -> bytes:
        """The next message; b"" at the end of the socket, or of a process that has never opened it."""
        if not self._connected.done():
            ended = asyncio.create_task(self._process.wait())
            connected = asyncio.create_task(asyncio.wait({self._connected}))
            await asyncio.wait({connected, ended}, return_when=asyncio.FIRST_COMPLETED)
            connected.cancel()
            ended.cancel()
            if not self._connected.done():
                return b""
        try:
            return await self._connected.result()[0].readline()
        except ConnectionError:
            return b""

    async def _failure(self, kind: str, reason: str) -> TrialFailedError:
        """The failure to report: where rank 0 only saw others go, what those have written into the log."""
        if kind in ("rank_lost", "crash"):
            await self.end()
            for told in reversed(failures_in(tail(self.log, 1 << 16))):
                if told.kind != "rank_lost":
                    return TrialFailedError(told.kind, f"rank {told.rank}: {told.reason}")
        return TrialFailedError(kind, reason)

    async def end(self) -> None:
        """End all ranks, if need be by force."""
        if self._connected.done():
            self._connected.result()[1].close()
        self._server.close()
        await end_group(self._process, END_GRACE_S)
        if self._several:
            # Starters put ranks into sessions of their own; the name of the socket is on their command lines.
            await asyncio.to_thread(end_processes_with, self._name)
        await asyncio.to_thread(remove_temporary_files, self._name)

    def _tail(self) -> str:
        return f"end of {self.log}: {last_lines(self.log) or '(empty)'}"


def failures_in(text: str) -> list[TrainerFailed]:
    """What ranks other than 0 have written into a log, whatever a starter has put before it."""
    found = []
    for line in text.splitlines():
        start = line.find(FAILURE_LINE)
        if start >= 0:
            with contextlib.suppress(MessageError):
                message = decode_from_trainer(line[start:].encode())
                assert isinstance(message, TrainerFailed)
                found.append(message)
    return found
