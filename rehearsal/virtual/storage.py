"""The shared file system in virtual time: every write takes a while, and outages hold all up.

The bytes go to real files when their virtual write is over. What a process had not written when it
was killed is lost, as with a real one.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rehearsal.virtual.loop import VirtualLoop

Action = Callable[[], object]
Listener = Callable[[str], None]


@dataclass
class SharedStorage:
    """The file server of a rehearsal."""

    loop: VirtualLoop
    write_s: float = 0.0
    spread: float = 0.0
    seed: int = 0
    refuses_until_s: float = 0.0
    reason: str = ""
    """The error that writers get until then; empty: they wait in the system call."""
    writes: int = 0
    _rng: random.Random = field(init=False, repr=False)
    """Generator for all writes: seeding one for each takes longer than the write."""

    def __post_init__(self) -> None:
        self._rng = random.Random(f"writes {self.seed}")  # noqa: S311  not for secrets

    def refuse(self, seconds: float, reason: str) -> None:
        """Write nothing for a while."""
        self.refuses_until_s = max(self.refuses_until_s, self.loop.time() + seconds)
        self.reason = reason

    @property
    def left_s(self) -> float:
        """Seconds until it writes again."""
        return max(0.0, self.refuses_until_s - self.loop.time())

    def write_takes_s(self) -> float:
        """Seconds of the next write, while nothing is wrong."""
        self.writes += 1
        if not self.spread:
            return self.write_s
        return self.write_s * (1 + self.spread * self._rng.random())


class VirtualWrites:
    """The thread of a process that writes: `aiperf.storage.storage_thread.InOrder` in virtual time.

    `listener` hears the reason of a wait for storage, and "" at its end; `written` is called after
    each action.
    """

    def __init__(self, storage: SharedStorage, listener: Listener, written: Callable[[], object] | None = None) -> None:
        self._storage = storage
        self._listener = listener
        self._written = written
        self._actions: deque[Action] = deque()
        self._given = 0
        self._done = 0
        self._waiting: deque[tuple[int, Action]] = deque()
        self._busy = False
        self._killed = False

    def put(self, action: Action) -> None:
        """Queue an action behind all that were put before."""
        if self._killed:
            return
        self._given += 1
        self._actions.append(action)
        if not self._busy:
            self._busy = True
            self._storage.loop.call_later(self._storage.write_takes_s(), self._write)

    def _write(self) -> None:
        if self._killed or not self._actions:
            self._busy = False
            return
        # Looked at when the write would be over: one that an outage interrupts waits for its end.
        if self._storage.refuses_until_s and (left_s := self._storage.left_s) > 0:
            if self._storage.reason:
                self._listener(self._storage.reason)
            # Asked again then: an outage may have been made longer meanwhile.
            self._storage.loop.call_later(left_s, self._write_again)
            return
        self._actions.popleft()()
        self._note()
        self._busy = bool(self._actions)
        if self._busy:
            self._storage.loop.call_later(self._storage.write_takes_s(), self._write)

    def _write_again(self) -> None:
        if not self._killed and not self._storage.left_s:
            self._listener("")
        self._write()

    def _note(self) -> None:
        self._done += 1
        if self._written is not None:
            self._written()
        # In the loop's own turn, since a virtual process has no other thread.
        while self._waiting and self._waiting[0][0] <= self._done:
            self._waiting.popleft()[1]()

    def after(self, callback: Action) -> None:
        """Call back as soon as every action so far is done; at once if they are."""
        if self._killed:
            return
        if self._given == self._done:
            callback()
        else:
            self._waiting.append((self._given, callback))

    @property
    def idle(self) -> bool:
        """True if every action is done."""
        return self._given == self._done

    def drain(self, timeout_s: float) -> bool:
        """Do all that is left at once: an orderly end waits for it."""
        while self._actions and not self._killed:
            self._actions.popleft()()
            self._note()
        return True

    def kill(self) -> None:
        """Do nothing any more: the process is dead, and what it had not written is lost."""
        self._killed = True
        self._actions.clear()
        self._waiting.clear()
