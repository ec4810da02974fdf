"""InfiniBand ports, by the files of Linux (Documentation/ABI/stable/sysfs-class-infiniband)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from aiperf.host import this_host
from aiperf.machine.vendors import Fields

WORD_BYTES = 4
"""Ports count data in words of 32 bits."""

TRAFFIC = {"port_rcv_data": "infiniband_received_bytes", "port_xmit_data": "infiniband_sent_bytes"}

DOWN = "link_downed"

ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
)
"""Counters of what a healthy fabric does not have, or hardly."""


def sample_infiniband() -> Fields:
    """Bytes, errors and losses of links over all ports; empty without a port."""
    totals: Counter[str] = Counter()
    for port in sorted(this_host().root.glob("sys/class/infiniband/*/ports/*")):
        counters = {file.name: value for file in port.glob("counters/*") if (value := _number(file)) is not None}
        for name, field in TRAFFIC.items():
            if name in counters:
                totals[field] += WORD_BYTES * counters[name]
        if DOWN in counters:
            totals["infiniband_link_downs"] += counters[DOWN]
        known = [counters[name] for name in ERRORS if name in counters]
        if known:
            totals["infiniband_errors"] += sum(known)
    return dict(totals)


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
