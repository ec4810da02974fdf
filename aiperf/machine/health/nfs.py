"""NFS requests that were sent again, by /proc/self/mountstats (Linux, net/sunrpc/stats.c)."""

from __future__ import annotations

import re

from aiperf.host import this_host
from aiperf.machine.vendors import Fields

MOUNT = re.compile(r"device .* with fstype (\S+)")

OPERATION = re.compile(r"\s+\w+: (\d+) (\d+) (\d+) \d+ \d+ \d+ \d+ \d+")
"""An operation's requests, transmissions and major timeouts; then bytes and milliseconds."""


def sample_nfs() -> Fields:
    """Retransmissions and major timeouts of all NFS mounts; empty without a mount."""
    try:
        lines = (this_host().root / "proc/self/mountstats").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    again = timeouts = 0
    mounts, here = 0, False
    for line in lines:
        if mount := MOUNT.match(line):
            here = mount[1] in ("nfs", "nfs4")
            mounts += here
        elif here and (operation := OPERATION.match(line)):
            requests, transmissions, major = map(int, operation.groups())
            again += max(0, transmissions - requests)
            timeouts += major
    return {"nfs_retransmissions": again, "nfs_timeouts": timeouts} if mounts else {}
