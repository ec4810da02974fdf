"""A pool of processes for large inputs; small ones are handled in this process."""

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from typing import Any, ParamSpec, Self, TypeVar

from aiperf.errors import EnvironmentNotReadyError
from aiperf.host import this_host
from aiperf.signals import die_with_parent

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")

MANY_TRIALS = 1000
"""Number of a run's trials above which copying the process for a part of its report pays off."""

KILLED = "a process of the report was killed, perhaps for want of memory; nothing of the run is lost: try again"


class Workers:
    """Processes for the parts of a report: as many as there are CPUs, or none.

    At the end of its block raises EnvironmentNotReadyError if one of them was killed.
    """

    def __init__(self, several: bool) -> None:
        self._pool = _pool() if several else None

    @property
    def ahead(self) -> int:
        """Tasks that keep the processes at work while the caller takes in a result."""
        return 4 * this_host().usable_cpus() if self._pool is not None else 0

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a task; without processes it is finished when this returns."""
        if self._pool is not None:
            return self._pool.submit(_do_or_end, partial(work, *args, **kwargs))
        future: Future[T] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # as in a pool, `result` raises it
            future.set_exception(error)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise EnvironmentNotReadyError([KILLED]) from error


def _do_or_end(work: Callable[[], T]) -> T:
    """Do a work of a pool. What ends the process there does so, once the work has cleaned up."""
    try:
        return work()
    except SystemExit:  # the pool would hand it to a parent that may be dead, and wait for more
        os._exit(1)


def do_both(here: Callable[[], T], there: Callable[[], U], several: bool) -> tuple[T, U]:
    """Do two works, the second in a copy of this process if `several`; give both results.

    A copy has all that is in memory; what it makes there is lost, but for the result. Raises the
    first of their errors, and EnvironmentNotReadyError if the copy was killed.
    """
    if not several or not _can_be_copied():
        return here(), there()
    gc.freeze()  # the copy shares all pages that no collection writes to
    with ProcessPoolExecutor(1, get_context("fork"), initializer=_take, initargs=(there,)) as pool:
        # The work itself went into the copy by the fork, so it need not be picklable.
        other = pool.submit(_do_or_end, _do)
        found = here()
        try:
            return found, other.result()
        except BrokenProcessPool as error:
            raise EnvironmentNotReadyError([KILLED]) from error


_taken: list[Callable[[], Any]] = []
"""Work of this process, if it is a copy."""


def _end_with_parent() -> None:
    """Ctrl-C reaches every process of a terminal: this one ends without a word.

    Nor does it outlive a parent that was killed: it would wait for work for ever.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    die_with_parent(signal.SIGTERM)
    parent = parent_process()
    if parent is None or os.getppid() != parent.pid:
        os._exit(1)  # it died before


def _take(work: Callable[[], Any]) -> None:
    _end_with_parent()
    _taken[:] = [work]


def _do() -> Any:
    return _taken[0]()


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Millions of records make no garbage, and looking for it takes longer than reading them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # the records stay in memory: later collections need not visit them
        if enabled:
            gc.enable()


def _can_be_copied() -> bool:
    """True if this process has one thread: another might hold a lock that no copy would release."""
    return threading.active_count() == 1


def _pool() -> ProcessPoolExecutor:
    """Processes that share what this one has imported, if it can be copied."""
    method = "fork" if _can_be_copied() else "spawn"
    return ProcessPoolExecutor(mp_context=get_context(method), initializer=_begin)


def _begin() -> None:
    """Keep the pages of old objects shared: a collection would write to each of them."""
    _end_with_parent()
    gc.freeze()
    gc.enable()
