"""A trainer in processes of its own: ranks that a starter starts, reached through one socket."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Self

from aiperf.clock import wait_awake
from aiperf.errors import MessageError, TrialFailedError
from aiperf.files import move
from aiperf.machine.oom_order import prefer_oom_kill
from aiperf.processes import (
    MemoryKills,
    describe_exit,
    end_group,
    end_processes_with,
    last_lines,
    spawn_silent,
    tail,
)
from aiperf.storage.logs import trim_log
from aiperf.storage.patience import Waits
from aiperf.wire.lines import MAX_LINE_BYTES, decode_from_trainer, encode, failures_in
from aiperf.wire.messages import (
    Begin,
    FromTrainer,
    Message,
    TrainerDone,
    TrainerFailed,
    TrainerPhase,
    TrainerReady,
    TrainerWaits,
    TrainRequest,
)
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer import Trainer
from replica.trainer.channel import peer_user
from replica.trainer.starters.groups import ended_by, survived_groups
from replica.trainer.starters.mpirun import lost_rank
from replica.trainer.temporary import remove_left_folders

log = logging.getLogger(__name__)

# The agent's end of the socket to rank 0. A local socket needs no port, which another replica of
# the node could take, and the kernel names the user at its other end.


class RankSocket:
    """A local socket with a random name.

    It accepts one connection, of this user, and greets it with the request.
    """

    def __init__(self, request: TrainRequest) -> None:
        self.name = f"aiperf-{secrets.token_hex(16)}"
        """Name in Linux's abstract namespace, without the leading zero byte.

        The kernel frees such a name with its socket, so that a crash leaves no file behind.
        """
        self._request = request
        self._connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Wait for rank 0 from now on. Raises OSError."""
        self._server = await asyncio.start_unix_server(self.accept, f"\0{self.name}", limit=MAX_LINE_BYTES)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection if it is the first one of this user; otherwise close it.

        An error is raised by `send` and `next_line`: the event loop calls this, and would only log
        it.
        """
        end: socket.socket = writer.get_extra_info("socket")
        try:
            if self._connected.done() or peer_user(end) != os.getuid():
                writer.close()
                return
            writer.write(encode(self._request))
        except Exception as error:
            writer.close()
            failure = TrialFailedError("start", f"the trainer cannot be asked: {type(error).__name__}: {error}")
            self._connected.set_exception(failure)
            return
        self._connected.set_result((reader, writer))

    async def send(self, message: Message) -> None:
        """Send a message as soon as rank 0 is connected.

        A rank that is gone is noticed by its end, not here.
        """
        _, writer = await self._connected
        with contextlib.suppress(ConnectionError):
            writer.write(encode(message))
            await writer.drain()

    async def next_line(self, process: asyncio.subprocess.Process) -> bytes:
        """Read the next line; b"" at the end of the connection, or if `process` ends unconnected.

        Raises ValueError for a line that is too long.
        """
        if not await self._connected_before_the_end_of(process):
            return b""
        try:
            return await self._connected.result()[0].readline()
        except ConnectionError:
            return b""

    async def _connected_before_the_end_of(self, process: asyncio.subprocess.Process) -> bool:
        if not self._connected.done():
            waiting: set[asyncio.Task[Any]] = {
                asyncio.create_task(process.wait()),
                # In a wait of its own: cancelling this task must not cancel the future.
                asyncio.create_task(asyncio.wait({self._connected})),
            }
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:  # this may be cancelled and called again
                for task in waiting:
                    task.cancel()
        return self._connected.done()

    def close(self) -> None:
        """Close the connection, and accept no other."""
        if self._connected.done() and self._connected.exception() is None:
            self._connected.result()[1].close()
        if self._server is not None:
            self._server.close()


END_GRACE_S = 5.0
"""Seconds after SIGTERM in which ranks may end by themselves."""

EXIT_S = 60.0
"""Seconds in which ranks that have trained may end: starters wait for those of all nodes."""


class TrainerProcess(Trainer):
    """The agent's handle on the ranks of one training, which are a process group of their own.

    Made by `start`.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        socket: RankSocket,
        log: Path,
        several: bool,
        waits: Waits | None = None,
    ) -> None:
        self._process = process
        self._socket = socket
        self._log = log
        self._several = several
        self._waits = waits.of(socket.name) if waits is not None else None
        self._kills = MemoryKills()
        self._trimming: asyncio.Future[None] | None = None

    @classmethod
    async def start(cls, setup: RankSetup, request: TrainRequest, log: Path, waits: Waits | None = None) -> Self:
        """Start the ranks; rank 0 gets the request as soon as it connects.

        Its waits for storage are added to others. Raises TrialFailedError ("start").
        """
        command: list[str] = []
        socket = RankSocket(request)
        # Before the ranks start: rank 0 connects once, and does not try again.
        await socket.listen()
        try:
            command, environment = setup.command(socket.name)
            process = await spawn_silent(command, log, environment)
        except TrialFailedError:
            socket.close()
            raise
        except (OSError, ValueError) as error:
            socket.close()
            raise TrialFailedError("start", f"{command[0] if command else 'ranks'}: {error}") from error
        prefer_oom_kill(process.pid)
        return cls(process, socket, log, several=setup.ranks > 1 or setup.servers > 0, waits=waits)

    @property
    def pid(self) -> int:
        """Process id of the starter or only rank; also the process group of all on this node."""
        return self._process.pid

    def rename_log(self, log: Path) -> None:
        """Move the log, which the ranks keep writing to. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):  # it could not be made
            move(self._log, log)
        self._log = log

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        """Yield the phases of the warm-up. Raises TrialFailedError as `messages` does."""
        async for message in self.messages(silence_s):
            if isinstance(message, TrainerReady):
                self.built = message.built
                return
            if isinstance(message, TrainerPhase):
                yield message
        raise TrialFailedError("protocol", "the trainer ended before it was ready, without a reason")

    async def begin(self, message: Begin) -> None:
        """Let the warm ranks begin to train."""
        await self._socket.send(message)

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        """Yield the reports of the training, until its socket ends.

        Raises TrialFailedError, with the end of the log. Whatever happens to a rank once rank 0 has
        reported the end of the training is no failure: nothing of the training is left to do.
        """
        while True:
            try:
                line = await wait_awake(partial(self._socket.next_line, self._process), silence_s)
                if not line:
                    break
                message = decode_from_trainer(line)
            except TimeoutError:
                raise TrialFailedError("hang", f"no report for {silence_s:.0f} s; {self._tail()}") from None
            except (MessageError, ValueError) as error:
                raise TrialFailedError("protocol", f"{error}; {self._tail()}") from None
            if isinstance(message, TrainerFailed):
                raise await self._failure(message.kind, message.reason)
            self._trim_log()
            if isinstance(message, TrainerWaits):
                self._note_wait(message.reason)
            else:
                yield message
            if isinstance(message, TrainerDone):
                await self._note_exit()
                return
        code = await self._process.wait()
        if code != 0:
            raise await self._failure("crash", f"the trainer {self._exit(code)}; {self._tail()}")

    async def _note_exit(self) -> None:
        """Give ranks that have trained time to end, and log if they do not end well."""
        try:
            async with asyncio.timeout(EXIT_S):
                code = await self._process.wait()
        except TimeoutError:
            log.warning("a trainer that has trained does not end; %s", self._tail())
            return
        if code != 0:
            log.warning("a trainer that had trained %s; %s", self._exit(code), self._tail())

    def _exit(self, code: int) -> str:
        return f"{'was' if code < 0 else 'ended with'} {describe_exit(code)}{self._out_of_memory(code)}"

    def _note_wait(self, reason: str) -> None:
        if self._waits is not None:
            self._waits(reason)

    def _trim_log(self) -> None:
        """Keep the log small, in a thread: storage that does not answer must not delay reports."""
        if self._trimming is None or self._trimming.done():
            self._trimming = asyncio.get_running_loop().run_in_executor(None, trim_log, self._log)

    def _out_of_memory(self, code: int) -> str:
        """The cause of a SIGKILL in words, if the kernel was out of memory meanwhile; else ''."""
        if code != -signal.SIGKILL or not self._kills.have_grown():
            return ""
        return ", since the node or its memory limit was out of memory"

    async def _failure(self, kind: str, reason: str) -> TrialFailedError:
        """Find the failure to report.

        If rank 0 only noticed the loss of another rank, the cause is in that rank's part of the
        log. The ranks are ended first, so that all of them have written theirs.
        """
        if kind in ("rank_lost", "crash"):
            await self.end()
            log = tail(self._log, 1 << 16)
            survived = survived_groups(log)
            for failure in reversed(failures_in(log)):
                if failure.kind != "rank_lost" and failure.group not in survived:
                    return TrialFailedError(failure.kind, f"{failure.name}: {failure.reason}")
            if (killed := ended_by(log) or lost_rank(log)) is not None:
                return TrialFailedError("rank_lost", killed)
        return TrialFailedError(kind, reason)

    async def end(self) -> None:
        """End all ranks, by force if they do not end by themselves."""
        # First: rank 0 ends by itself when it closes, which leaves the least behind.
        self._socket.close()
        self._note_wait("")
        await end_group(self._process, END_GRACE_S)
        if self._several:
            # Starters put ranks into sessions of their own; the name of the socket is on their
            # command lines.
            await asyncio.to_thread(end_processes_with, self._socket.name)
        await asyncio.to_thread(remove_left_folders)

    def _tail(self) -> str:
        return f"end of {self._log}: {last_lines(self._log) or '(empty)'}"
