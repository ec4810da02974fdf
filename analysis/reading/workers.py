"""Work that other processes share where there is much of it, and that is done here and now where there is little."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """As many processes as there are CPUs, or none."""

    def __init__(self, several: bool) -> None:
        self._pool = ProcessPoolExecutor(mp_context=get_context("spawn")) if several else None

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have something done; without processes it is done when this returns."""
        if self._pool is not None:
            return self._pool.submit(work, *args, **kwargs)
        future: Future[T] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # as a pool does: who asks for the result gets it
            future.set_exception(error)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
