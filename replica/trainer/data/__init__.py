"""Input pipelines by data set: the one place where a new data set is registered."""

from __future__ import annotations

from collections.abc import Callable

from aiperf.errors import UsageError
from replica.trainer.data.contract import DataSource
from replica.trainer.data.digits import DigitsSource

SOURCES: dict[str, Callable[[], DataSource]] = {"digits": DigitsSource}


def open_source(name: str) -> DataSource:
    """The input pipeline of a data set. Raises UsageError where there is none."""
    if name not in SOURCES:
        raise UsageError(f"no input pipeline for data set {name!r}; available: {', '.join(sorted(SOURCES))}")
    return SOURCES[name]()
