"""Accelerators beyond their names: clocks, links among them and to the host, memory domains."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from aiperf.host import text_in, this_host
from aiperf.machine.vendors import vendor_of_node

ACCELERATORS = re.compile(r"0x(0302|0380|1200)")
"""PCI classes of accelerators: 3D controllers, other display controllers, processing accelerators
(PCI Code and ID Assignment, 1.11). Cards with a screen (0x0300) are not among them.
"""

GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCIe generations by gigatransfers per second and lane (PCI-SIG, base specifications)."""


def describe_devices() -> dict[str, str | int | float | None]:
    """Clocks and links of accelerators, by their driver and by the kernel, and memory domains."""
    links: Counter[str] = Counter()
    domains: dict[str, int] = {}
    for device in sorted(this_host().root.glob("sys/bus/pci/devices/*")):
        if not ACCELERATORS.match(text_in(device / "class")):
            continue
        most = _link(device, "max")
        links[most if _link(device, "current") in ("", most) else f"{most}, now {_link(device, 'current')}"] += 1
        domain = text_in(device / "numa_node")
        if domain.isdecimal():
            domains[domain] = domains.get(domain, 0) + 1
    found = {
        "accelerator_pcie": "; ".join(f"{number} x {link}" for link, number in links.most_common() if link),
        "accelerator_numa": ", ".join(f"{number} at node {domain}" for domain, number in sorted(domains.items())),
    }
    vendor = vendor_of_node()
    by_driver = vendor.describe() if vendor is not None else {}
    return {**by_driver, **{name: text for name, text in found.items() if text}}


def _link(device: Path, which: str) -> str:
    """A link, such as PCIe 5 x16; the current one is slower while the device rests."""
    speed = re.match(r"[\d.]+", text_in(device / f"{which}_link_speed"))
    width = text_in(device / f"{which}_link_width")
    if speed is None or not width.isdecimal():
        return ""
    rate = float(speed[0])
    return f"PCIe {GENERATIONS.get(rate, f'{rate:g} GT/s')} x{width}"
