"""A pool of processes for large inputs; small ones are handled in this process."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """As many processes as there are CPUs, or none."""

    def __init__(self, several: bool) -> None:
        self._pool = _pool() if several else None

    @property
    def ahead(self) -> int:
        """Tasks that keep the processes at work while the caller takes in a result."""
        return 4 * (os.cpu_count() or 1) if self._pool is not None else 0

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a task; without processes it is finished when this returns."""
        if self._pool is not None:
            return self._pool.submit(work, *args, **kwargs)
        future: Future[T] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # as in a pool, `result` raises it
            future.set_exception(error)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _pool() -> ProcessPoolExecutor:
    """Processes that share what this one has imported, if it can be copied: it has one thread.

    Another thread might hold a lock that nothing in the copy would release.
    """
    method = "fork" if threading.active_count() == 1 else "spawn"
    return ProcessPoolExecutor(mp_context=get_context(method), initializer=_begin)


def _begin() -> None:
    """Keep the pages of what was imported shared: a collection would write to each of its objects."""
    gc.freeze()
    gc.enable()
