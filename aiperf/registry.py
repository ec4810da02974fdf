"""Registries of seams: implementations by name, each imported only when it is asked for."""

import gc
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, cast

from aiperf.errors import UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """The implementations of one seam: name -> "package.module:object", or the object itself.

    Loading lazily keeps TensorFlow, Ray or NNI out of processes that do not use them.
    """

    def __init__(self, seam: str, paths: Mapping[str, str | T]) -> None:
        self.seam = seam
        self._entries: dict[str, str | T] = dict(paths)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, name: str, entry: str | T) -> None:
        """Register an implementation. Raises ValueError if the name is taken."""
        if name in self._entries:
            raise ValueError(f"{self.seam} {name!r} is registered already")
        self._entries[name] = entry

    def load(self, name: str) -> T:
        """The implementation of that name. Raises UsageError if there is none."""
        if name not in self._entries:
            raise UsageError(f"unknown {self.seam} {name!r}; known: {', '.join(self)}")
        entry = self._entries[name]
        if not isinstance(entry, str):
            return entry
        module, _, attribute = entry.partition(":")
        with uncollected():
            found: Any = getattr(importlib.import_module(module), attribute)
        return cast(T, found)


@contextmanager
def uncollected() -> Iterator[None]:
    """Meanwhile no garbage is collected.

    An import makes objects that stay, up to a million of them, which each collection visits again:
    a quarter of the time that TensorFlow takes to import.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
