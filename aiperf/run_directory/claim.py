"""The claim to a run: one primary at a time, on any node that sees the run directory.

Claims are files with rising numbers. Each is written whole to a temporary name and published with a
hard link, which network file systems make for only one of several takers. The number is one above
that of the last claim, whose holder must be over: released, dead, or untouched while the taker
watched. A claim is never removed, so that of all takers of one claim only one finds the next number
free, however old its view of the folder is. Network file systems have no dependable locks. The
number also identifies a primary among those of its run (`PrimaryIdentity`).
"""

import contextlib
import re
import secrets
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from aiperf.clock import Clock
from aiperf.errors import RunHeldError
from aiperf.run_directory.disk import Disk, Stamp
from aiperf.run_directory.holder import Holder, Machine, parse_holder
from aiperf.storage.durable import has_no_links
from aiperf.storage.patience import once_more

SILENCE_S = 90.0
"""A holder that cannot be seen from here is over if its claim is not touched for this long."""

# A sixth of the silence: a busy file server may delay several touches in a row.
TOUCH_INTERVAL_S = 15.0
LOOK_INTERVAL_S = 1.0
"""Seconds between two looks at a claim that is being watched."""

RETRY_S = 0.2
"""Seconds until the next look after another taker was faster."""

CLAIM_NAME = re.compile(r"(\d{6,12})\.json")


@dataclass(frozen=True, slots=True)
class _Found:
    """The claim with the highest number; 0 is that of an earlier version."""

    number: int
    path: Path
    holder: Holder
    stamp: Stamp


class Claim:
    """The claim on one run, from `acquire` to `release`."""

    def __init__(self, folder: Path, clock: Clock, disk: Disk, machine: Machine) -> None:
        self._folder = folder
        self._clock = clock
        self._disk = disk
        self._machine = machine
        self._token = secrets.token_hex(8)
        self.number = 0
        """Above that of every earlier claim on the run."""
        self.alone = True
        """False if an earlier holder was only silent, and may be at work again."""
        self._touched_s = clock.monotonic_s()
        self.lost: RunHeldError | None = None
        """Names the primary that has taken the run over since."""

    @classmethod
    def acquire(
        cls,
        folder: Path,
        clock: Clock,
        disk: Disk | None = None,
        machine: Machine | None = None,
        show: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Claim the run. `folder` is that of its claims.

        Waits up to `SILENCE_S` if the last holder cannot be seen from here, and says so (`show`).
        Raises RunHeldError if a living primary has the run, naming its process, its node and since
        when; OSError if the run directory cannot be written.
        """
        claim = cls(folder, clock, disk or Disk(), machine or Machine())
        while not claim._take(_last(claim._disk, folder), show):
            clock.pause(RETRY_S)
        return claim

    def _take(self, last: _Found | None, show: Callable[[str], None]) -> bool:
        """Publish the claim that follows the last one; False if another taker was faster."""
        if last is not None:
            certain = self._await_end(last, show)
            if certain is None:
                return False
            # Passed on: a primary that was only silent may come back under any later holder.
            self.alone = certain and last.holder.alone
        return self._publish(last.number + 1 if last is not None else 1)

    def _await_end(self, last: _Found, show: Callable[[str], None]) -> bool | None:
        """Wait until the last holder is over: True for certain, False if it is only silent.

        None if its claim is not the last one any more. Raises RunHeldError if it lives.
        """
        if last.holder.released:
            return True
        lives = self._machine.lives(last.holder)
        if lives is None:
            return self._watch(last, show)
        if lives:
            raise _held(self._folder, last.holder)
        return True

    def _watch(self, last: _Found, show: Callable[[str], None]) -> bool | None:
        show(f"waiting up to {SILENCE_S:.0f} s to see whether this run's primary is alive: {last.holder.named}")
        began_s = self._clock.monotonic_s()
        while self._clock.monotonic_s() - began_s <= SILENCE_S:
            self._clock.pause(LOOK_INTERVAL_S)
            now = _last(self._disk, self._folder)
            if now is None or now.number != last.number or now.holder != last.holder:
                return None
            # Stamps are compared with each other and never with a clock: those of file servers and
            # of nodes may be minutes apart. Only this node's monotonic clock measures the silence.
            if now.stamp != last.stamp:
                raise _held(self._folder, last.holder)
        return False

    def _publish(self, number: int) -> bool:
        """Publish the claim under a number; False if it is taken."""
        path = _path(self._folder, number)
        # A name of its own for each attempt, so that none meets what another one has left behind.
        temporary = path.with_name(f".{path.name}.{self._token}.{secrets.token_hex(3)}.tmp")
        data = self._machine.describe(self._token, self._clock.utc_ms(), self.alone).encode()
        self._disk.write(temporary, data)
        try:
            won = self._link(temporary, path, data)
        finally:
            self._disk.remove(temporary)
        if won:
            self.number = number
        return won

    def _link(self, temporary: Path, path: Path, data: bytes) -> bool:
        try:
            self._disk.link(temporary, path)
        except FileNotFoundError:
            return False  # a primary that starts removes temporary files: try again
        except OSError as error:
            # NFS may report the failure of a link that it has made: its request was sent twice.
            # A second name of the own file can only be the claim: open(2) recommends this test
            # (under O_EXCL) for locks on NFS.
            if self._disk.links(temporary) == 2 or self._is_own(path):
                return True
            if isinstance(error, FileExistsError) or self._disk.read(path) is not None:
                return False
            if not has_no_links(error):
                raise
            return _create(self._disk, path, data) or self._is_own(path)
        return True

    def _is_own(self, path: Path) -> bool:
        found = self._disk.read(path)
        return found is not None and parse_holder(found[0]).token == self._token

    def claim_above(self, number: int) -> None:
        """Take a number above this one, which the records know, if the own one is not.

        It is if no claim was removed. Raises RunHeldError if another primary is faster.
        """
        if self.number > number:
            return
        self.alone = False  # Another primary may hold one of the claims that were removed.
        if not self._publish(number + 1):
            raise _held(self._folder, Holder())

    def touch(self, every_s: float = 0.0) -> None:
        """Show that the primary lives, unless it has within `every_s`.

        A claim that was removed is published again.

        No-op if the file system refuses, or if another primary has taken the run over since
        (`lost`): this one must stop.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._touched_s < every_s:
            return
        self._touched_s = now_s
        try:
            last = _last(self._disk, self._folder)
            # Someone has tidied the folder up. The number is still this primary's, unless another
            # one is found under it in the second look.
            if last is None or last.number < self.number:
                self._publish(self.number)
                last = _last(self._disk, self._folder)
            if last is None or last.holder.token == self._token:
                self._disk.touch(_path(self._folder, self.number))
                return
        except OSError:
            return
        found = f"another primary has taken this run over: {last.holder.named}; this one ends"
        self.lost = RunHeldError(f"{self._folder.parent}: {found}")

    def release(self) -> None:
        """Give the run up; a claim of another primary stays as it is."""
        path = _path(self._folder, self.number)
        temporary = path.with_name(f".{path.name}.{self._token}.tmp")
        try:
            found = self._disk.read(path)
            if found is None or (holder := parse_holder(found[0])).token != self._token:
                return
            self._disk.write(temporary, replace(holder, released=True).encode())
            self._disk.replace(temporary, path)
        except OSError:  # a process that has ended holds nothing, either
            with contextlib.suppress(OSError):
                once_more(lambda: self._disk.remove(temporary))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _create(disk: Disk, path: Path, data: bytes) -> bool:
    """Create a claim without hard links: others may see it half-written, and take it for alive."""
    try:
        disk.write(path, data)
    except FileExistsError:
        return False
    return True


def _held(folder: Path, holder: Holder) -> RunHeldError:
    run = shlex.quote(str(folder.parent))
    return RunHeldError(
        f"{folder.parent}: another primary has this run: {holder.named}; see it: aiperf status {run}; "
        f"end it: aiperf stop {run}"
    )


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.json"


def _last(disk: Disk, folder: Path) -> _Found | None:
    """The claim with the highest number, or that of an earlier version; None without one.

    Raises OSError.
    """
    numbers = [int(match[1]) for name in disk.names(folder) if (match := CLAIM_NAME.fullmatch(name))]
    number = max(numbers, default=0)
    path = _path(folder, number) if number else folder.with_name("primary.claim")
    found = disk.read(path)
    return None if found is None else _Found(number, path, parse_holder(found[0]), found[1])


@dataclass(frozen=True, slots=True)
class SeenHolder:
    """The primary that has, or had, a run, as others see it."""

    host: str
    pid: int
    alive: bool
    """False if it has died on this node, or on another one and is silent."""
    here: bool
    """True if it is, or was, a process of this node."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def find_holder(folder: Path, now_ms: int) -> SeenHolder | None:
    """The primary that has a run; None if it was released or never claimed. Writes nothing.

    For display: silence is measured by this node's clock.
    """
    machine = Machine()
    try:
        last = _last(Disk(), folder)
    except OSError:
        return None
    if last is None or last.holder.released or not last.holder.pid:
        return None
    lives = machine.lives(last.holder)
    silent = now_ms / 1000 - last.stamp[0] / 1e9 > SILENCE_S
    return SeenHolder(
        last.holder.host, last.holder.pid, not silent if lives is None else lives, machine.is_here(last.holder)
    )


def is_held_here(folder: Path, otherwise: bool = False) -> bool:
    """True if a living process of this node has the claim; `otherwise` if it cannot be read."""
    try:
        last = _last(Disk(), folder)
    except OSError:
        return otherwise
    return last is not None and not last.holder.released and Machine().lives(last.holder) is True


TOKEN_LENGTH = 8


@dataclass(frozen=True, slots=True)
class PrimaryIdentity:
    """A primary of a run, or another process that starts replicas, such as the doctor."""

    run: str = field(default_factory=lambda: secrets.token_hex(TOKEN_LENGTH // 2))
    """Token that all primaries of a run share, and no primary of another run has."""
    number: int = 1
    """Number of its claim: later primaries of the run have higher ones."""

    def __str__(self) -> str:
        return f"{self.run}-{self.number}"


def identity_of(claims: Path, number: int) -> PrimaryIdentity:
    """The identity of the primary whose claim has this number.

    A run is known by the token of its first claim, which no primary removes. If it cannot be read,
    the run has another name: what earlier primaries have left is not found then.
    """
    disk = Disk()
    try:
        found = disk.read(claims / min(filter(CLAIM_NAME.fullmatch, disk.names(claims)), key=_number_in))
    except (OSError, ValueError):
        found = None
    token = parse_holder(found[0]).token[:TOKEN_LENGTH] if found is not None else ""
    return PrimaryIdentity(token, number) if token.isalnum() else PrimaryIdentity(number=number)


def _number_in(name: str) -> int:
    return int(name.partition(".")[0])
