"""Network interfaces and InfiniBand ports of a node, by the files of Linux."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from aiperf.host import text_in, this_host


def describe_fabric() -> dict[str, str | int | float | None]:
    """Interfaces that are up, and ports that are active, each kind with its number."""
    root = this_host().root
    found = {"network": _counted(_interfaces(root)), "infiniband": _counted(_ports(root))}
    return {name: text for name, text in found.items() if text}


def _interfaces(root: Path) -> Iterator[str]:
    """Speed and driver of each interface with a device: no bridges, tunnels, or loopback.

    `speed` is in Mbit/s (Documentation/ABI/testing/sysfs-class-net), -1 if it is not known.
    """
    for interface in sorted(root.glob("sys/class/net/*")):
        if not (interface / "device").exists() or text_in(interface / "operstate") == "down":
            continue
        speed = text_in(interface / "speed")
        driver = (interface / "device/driver").resolve().name if (interface / "device/driver").exists() else ""
        rate = f"{int(speed) / 1000:g} Gbit/s" if speed.isdecimal() and int(speed) > 0 else "unknown speed"
        yield " ".join(filter(None, [rate, f"({driver})" if driver else ""]))


def _ports(root: Path) -> Iterator[str]:
    """Rate, link layer and adapter of each active port, as in 400 Gb/sec (4X NDR), mlx5."""
    for port in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        if "ACTIVE" not in text_in(port / "state"):
            continue
        adapter = port.parent.parent
        layer, kind = text_in(port / "link_layer"), text_in(adapter / "hca_type")
        yield ", ".join(filter(None, [text_in(port / "rate") or "unknown rate", layer, kind or adapter.name]))


def _counted(kinds: Iterator[str]) -> str:
    return "; ".join(f"{number} x {kind}" for kind, number in Counter(kinds).most_common())
