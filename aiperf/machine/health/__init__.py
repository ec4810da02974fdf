"""Sources of a node's health: what its kernel and its drivers count of errors and of slowing down.

A source is a function without arguments that gives fields of a sample of telemetry: counters since
the node or its driver started, which only grow. It is empty on a node without the thing, and leaves
out what it cannot read. Add a source to `sources`, and its fields to `aiperf.machine.health.kinds`.
"""

from __future__ import annotations

from collections.abc import Callable

from aiperf.machine.health.infiniband import sample_infiniband
from aiperf.machine.health.nfs import sample_nfs
from aiperf.machine.health.processors import sample_processors
from aiperf.machine.health.xid import Xids
from aiperf.machine.vendors import Fields


def sources() -> tuple[Callable[[], Fields], ...]:
    """All sources of a sampling process; each may fail by itself."""
    return sample_infiniband, sample_processors, sample_nfs, Xids()


__all__ = ["sample_infiniband", "sample_nfs", "sample_processors", "sources"]
