"""The primary's connection to one replica: its handshake, its messages, its end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeVar, cast, get_args

from aiperf import __version__
from aiperf.clock import AwakeWaits, Clock
from aiperf.errors import AiperfError, MessageError
from aiperf.processes import last_lines
from aiperf.wire import messages
from aiperf.wire.lines import decode_to_primary, encode
from primary.launchers import Exit, ReplicaProcess, ReplicaSpec
from primary.launchers.contract import HandsOver
from primary.launchers.talk import Talk, first_message

_M = TypeVar("_M", bound=messages.Message)

JobEvent = messages.Started | messages.Progress | messages.Recorded | messages.Finished | messages.Closing
"""A report of a replica about its job."""

_JOB_EVENTS = frozenset(get_args(JobEvent))
"""Types of the events of a job: a look-up by type is one step, `isinstance` one for each type, and
there are tens of millions of reports."""

CLOCK_SAMPLES = 5
"""Round trips of the clock handshake; the shortest one bounds the offset best."""


LOG_S = 5.0
"""Longest wait for the end of a log: it is in the run directory, whose storage may not answer."""


class ReplicaGoneError(AiperfError):
    """The replica cannot work, ended, or broke the protocol.

    Raised by `ReplicaLink`; the run continues without it.

    `restart` is True if another attempt may help, and `storage` if it may not before the run
    directory can be written. `began` is False if it could not even be started.
    """

    def __init__(self, reason: str, restart: bool = True, storage: bool = False, began: bool = True) -> None:
        self.restart = restart
        self.storage = storage
        self.began = began
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """A replica's clock minus the primary's. An offset within its uncertainty counts as none."""

    offset_ms: int
    uncertainty_ms: int

    @property
    def applied_ms(self) -> int:
        """The offset to correct by."""
        return self.offset_ms if abs(self.offset_ms) > self.uncertainty_ms else 0


class ReplicaLink:
    """Talks to one started replica.

    Every method raises ReplicaGoneError, with the reason, once it has ended.
    """

    def __init__(
        self, process: ReplicaProcess, spec: ReplicaSpec, silence_s: float, start_s: float | None = None
    ) -> None:
        """`start_s`: longest silence before it is ready; None: it may wait in a queue."""
        self._process = process
        self._next = process.next_message if isinstance(process, HandsOver) else self._decoded
        self._spec = spec
        self._silence_s = silence_s
        self._start_s = start_s
        self._in_time = None if start_s is None else AwakeWaits(self._next, start_s)
        self._ready = False
        self._heard = False
        """True once a message has come: from then on every line is one."""
        self._ended = False
        """True after the last message."""
        self.on_storage: Callable[[str], object] = lambda _: None
        """Called with the reason if the replica waits for storage, and with "" afterwards."""

    async def handshake(self, clock: Clock) -> tuple[messages.Ready, ClockOffset]:
        """Wait until the replica is ready and measure its clock."""
        ready = await self._expect(messages.Ready)
        if ready.version != __version__:
            raise ReplicaGoneError(
                f"the replica runs aiperf {ready.version}, the primary {__version__}: install the same version on "
                "all nodes, or name the right Python with environment.python or environment.activate",
                restart=False,
            )
        self._close_timer()
        self._ready, self._in_time = True, AwakeWaits(self._next, self._silence_s)
        samples = []
        for _ in range(CLOCK_SAMPLES):
            sent_ms, sent_s = clock.utc_ms(), clock.monotonic_s()
            await self.send(messages.ClockRequest())
            reply = await self._expect(messages.ClockReply)
            round_trip_ms = (clock.monotonic_s() - sent_s) * 1000
            # Half the round trip is taken for the way there (Cristian 1989): the error is at most
            # the other half, however unequal the ways are.
            offset = ClockOffset(round(reply.utc_ms - sent_ms - round_trip_ms / 2), round(round_trip_ms / 2) + 1)
            samples.append(offset)
        return ready, min(samples, key=lambda sample: sample.uncertainty_ms)

    async def send(self, message: messages.Message) -> None:
        """Send a message."""
        await self._process.send(encode(message))

    async def next_event(self) -> JobEvent:
        """The next report of the replica about its job."""
        message = await self._receive()
        if type(message) in _JOB_EVENTS:
            return cast(JobEvent, message)
        raise ReplicaGoneError(f"unexpected message {type(message).__name__} from the replica")

    async def drain(self) -> AsyncIterator[JobEvent]:
        """The reports that still come until the replica ends; other messages are dropped."""
        while not self._ended:
            with contextlib.suppress(MessageError):
                message = await self._next()
                self._ended = message is None
                if type(message) in _JOB_EVENTS:
                    yield cast(JobEvent, message)
        await self._process.wait()

    async def describe_absence(self, what: str) -> str:
        """Describe a replica that has not come, with the known facts: its job, its last lines."""
        known = await self._process.explain()
        last = await self._last_lines()
        return f"{what}{f': {known}' if known else ''}{f'; end of {self._spec.log}: {last}' if last else ''}"

    async def explain(self) -> str:
        """Ask the launcher for facts of the replica; may be empty."""
        return await self._process.explain()

    async def cancel(self, grace_s: float) -> Exit:
        """End the replica by force."""
        return await self._process.cancel(grace_s)

    async def _expect(self, kind: type[_M]) -> _M:
        message = await self._receive()
        if not isinstance(message, kind):
            raise ReplicaGoneError(f"expected {kind.__name__} from the replica, got {type(message).__name__}")
        return message

    async def _receive(self) -> messages.ToPrimary:
        while True:
            message = await self._next_message()
            if type(message) is messages.Unable:
                raise ReplicaGoneError(message.reason, restart=message.storage, storage=message.storage)
            if type(message) is messages.StorageWait:
                self.on_storage(message.reason)
            elif type(message) is not messages.Alive:
                return message

    async def _next_message(self) -> messages.ToPrimary:
        try:
            message = await (self._next() if self._in_time is None else self._in_time.next())
            if message is not None:
                return message
            self._ended = True
            self._close_timer()
        except MessageError as error:
            raise ReplicaGoneError(str(error)) from None
        except TimeoutError:
            silent = f"has given no sign of life for {self._silence_s:.0f} s"
            late = f"was not ready within {self._start_s or 0:.0f} s"
            raise ReplicaGoneError(await self._described(silent if self._ready else late)) from None
        raise ReplicaGoneError(await self._described(str(await self._process.wait())))

    def _close_timer(self) -> None:
        if self._in_time is not None:
            self._in_time.close()

    async def _decoded(self) -> messages.ToPrimary | None:
        if not self._heard:
            return await self._first()
        line = await self._process.receive()
        # A line without its end was cut off with the connection.
        return decode_to_primary(line) if line.endswith(b"\n") else None

    async def _first(self) -> messages.ToPrimary | None:
        """The first message, after whatever the way to the replica has to say."""
        talk = Talk(self._spec.log)
        while True:
            try:
                line = await self._process.receive()
            except MessageError:  # a line without an end
                continue
            if not line:
                return None
            if line.endswith(b"\n") and (message := first_message(line)) is not None:
                self._heard = True
                return message
            # In a thread: it writes to the log, in the run directory, whose storage may not answer.
            await asyncio.to_thread(talk.hear, line)

    async def _described(self, end: str) -> str:
        known = await self._process.explain()
        last = await self._last_lines() or "(empty)"
        return f"the replica {end}{f'; {known}' if known else ''}; end of {self._spec.log}: {last}"

    async def _last_lines(self) -> str:
        try:
            async with asyncio.timeout(LOG_S):
                return await asyncio.to_thread(last_lines, self._spec.log)
        except TimeoutError:
            return "(its storage does not answer)"
