"""The policy for storage that refuses: all errors are waited for but those that cannot pass.

A process has one policy (`PATIENCE`). It is `storage.patience` of the run while a primary, an agent
or a rank works, and 0 in all other commands: they report an error at once. Its waits, and those of
other policies in the same process, are reported as one (`Waits`).
"""

import errno
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

FINAL: Mapping[int, str] = {
    errno.ENOENT: "nothing has this name",
    errno.EEXIST: "the name is taken",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EISDIR: "the name is that of a folder",
    errno.ENOTEMPTY: "the folder has something in it",
    errno.ENAMETOOLONG: "the name is too long here",
    errno.EILSEQ: "the name has characters that the file system cannot write",
    errno.ELOOP: "symbolic links form a circle",
    errno.EXDEV: "the two names are on different file systems",
    errno.EMLINK: "the file has all the names that it can have",
    errno.EFBIG: "the file would be larger than the file system or ulimit -f allows",
    errno.EOVERFLOW: "a number does not fit into the answer",
    errno.EINVAL: "the file system does not know such a request",
    errno.ENOSYS: "the file system cannot do that",
    errno.EOPNOTSUPP: "the file system cannot do that",
    524: "the file system cannot do that",  # ENOTSUPP, the kernel's own, which some file systems let out
    errno.ENOTTY: "not a request to a file",
    errno.ESPIPE: "a pipe has no positions",
    errno.ENOTBLK: "not a device",
    errno.ENOEXEC: "not a program",
    errno.E2BIG: "the arguments of a program are too long",
    errno.ECHILD: "an error of processes",
    errno.ESRCH: "an error of processes",
    errno.EFAULT: "an error of the program",
    errno.EDOM: "an error of arithmetic",
    errno.ERANGE: "an error of arithmetic",
}
"""Errors that another attempt cannot mend, and why: they are about the request itself.

All others may pass: a full disk or quota, a remount, a file server that restarts or is slow, an
expired ticket, a client that was evicted (EIO, ESHUTDOWN), a daemon of FUSE that is started again
(ENOTCONN), a medium that is gone for a moment. Which of them a file system takes is its own affair.
"""


OF_LIMITS: Mapping[int, str] = {
    errno.EMFILE: "the limit of this process, ulimit -n, not the storage",
    errno.ENFILE: "the limit of this machine, fs.file-max, not the storage",
}
"""Errors that pass, and that no storage has: what is open is closed some time."""


def may_pass(error: BaseException) -> bool:
    """True for an error of storage that another attempt may not meet."""
    return isinstance(error, OSError) and error.errno is not None and error.errno not in FINAL


FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0

Listener = Callable[[str], None]
"""Takes the reason of a wait, and "" when nothing waits any more; called in any thread."""


class Patience:
    """Waits of one process for its storage. Its methods may be called from several threads."""

    def __init__(self, seconds: float = 0.0, listener: Listener | None = None) -> None:
        self._seconds = seconds
        self._hurried = threading.Event()
        self._lock = threading.Lock()
        self._tokens = count()
        self._waiting: dict[int, str] = {}
        self._listener = listener

    @property
    def seconds(self) -> float:
        """Longest wait for one action."""
        return 0.0 if self._hurried.is_set() else self._seconds

    @property
    def reason(self) -> str:
        """The error that is waited for; empty if nothing waits."""
        with self._lock:
            return next(iter(self._waiting.values()), "")

    @contextmanager
    def set(self, seconds: float, listener: Listener | None = None) -> Iterator[None]:
        """Wait this long at most while the block runs, and report waits to a listener."""
        before = self._seconds, self._listener
        self._seconds, self._listener = seconds, listener
        self._hurried.clear()
        try:
            yield
        finally:
            self._seconds, self._listener = before
            self._hurried.clear()

    def hurry(self) -> None:
        """End all waits with their errors, and begin none any more."""
        self._hurried.set()

    def attempt(self, action: Callable[[], T], what: object) -> T:
        """Do something with files, again and again while its error may pass.

        `what` names the file for people. Raises OSError after `seconds`, or at once for errors that
        do not pass. This thread waits: never call it in an event loop that has other duties.
        """
        waited_s, token = 0.0, None
        try:
            for attempt in count():
                try:
                    return action()
                except OSError as error:
                    if not may_pass(error) or waited_s >= self.seconds:
                        raise
                    if token is None:
                        token = self._begin(what, error)
                pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(attempt, 10), self.seconds - waited_s)
                # An event in place of a sleep: `hurry` ends all waits at once. Only pauses count,
                # so that a slow file server does not use the patience up by its own calls; and a
                # pause is never 0, so that the loop comes to its end.
                self._hurried.wait(max(pause_s, 0.001))
                waited_s += max(pause_s, 0.001)
            raise AssertionError
        finally:
            if token is not None:
                self._end(token, what)

    def _begin(self, what: object, error: OSError) -> int:
        limit = OF_LIMITS.get(error.errno or 0)
        reason = f"{what}: {error.strerror or error}{f' ({limit})' if limit else ''}"
        log.warning("storage refuses (%s); trying again for %.0f s", reason, self.seconds)
        with self._lock:
            token = next(self._tokens)
            # By token: several threads may wait for one file.
            self._waiting[token] = reason
            listener = self._listener
        if listener is not None:
            listener(reason)
        return token

    def _end(self, token: int, what: object) -> None:
        with self._lock:
            self._waiting.pop(token)
            left, listener = next(iter(self._waiting.values()), ""), self._listener
        log.warning("storage: the wait for %s is over", what)
        if listener is not None:
            listener(left)


PATIENCE = Patience()
"""The policy of this process."""


def is_there(path: Path) -> bool:
    """True if a file or folder exists, by the policy of this process. Raises OSError."""
    return with_patience(path.exists, path)


def once_more(action: Callable[[], T]) -> T:
    """Do something with files, and again at once if its error may pass. Raises OSError.

    For what nobody should wait for: the tidying at the end of a run.
    """
    try:
        return action()
    except OSError as error:
        if not may_pass(error):
            raise
        return action()


def with_patience(action: Callable[[], T], what: object) -> T:
    """`Patience.attempt` with the policy of this process."""
    return PATIENCE.attempt(action, what)


class Waits:
    """Reports when a process begins to wait for storage, and when it can write again.

    `note` gets the reason, and "" at the end; it is called in any thread, never twice at once.
    """

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._told = False

    def of(self, source: str) -> Listener:
        """A listener for one of the policies."""

        def take(reason: str) -> None:
            # Held during the call, so that a beginning and an end are noted in their order.
            with self._lock:
                if reason:
                    self._reasons[source] = reason
                else:  # sources come and go
                    self._reasons.pop(source, None)
                now = next(iter(self._reasons.values()), "")
                if bool(now) != self._told:
                    self._told = bool(now)
                    self._note(now)

        return take
