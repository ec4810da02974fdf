"""Makers of accelerators by name: what their drivers say. Register a new one here."""

from aiperf.machine.vendors.contract import Accelerator, Fields, Vendor
from aiperf.registry import Registry

VENDORS: Registry[Vendor] = Registry(
    "vendor",
    {
        "nvidia": "aiperf.machine.vendors.nvidia:Nvidia",
        "amd": "aiperf.machine.vendors.amd:Amd",
        "kernel": "aiperf.machine.vendors.kernel:Kernel",
    },
)
"""Vendors in the order in which they are asked: a vendor's own library knows more than Linux."""


def listed_here() -> tuple[Vendor, tuple[Accelerator, ...]] | None:
    """The first that finds accelerators here, with all of them; None on a node without any."""
    for name in VENDORS:
        vendor = VENDORS.load(name)
        if found := vendor.accelerators():
            return vendor, found
    return None


def vendor_of_node() -> Vendor | None:
    """The first that finds accelerators here; None on a node without any."""
    here = listed_here()
    return here[0] if here is not None else None


__all__ = ["VENDORS", "Accelerator", "Fields", "Vendor", "listed_here", "vendor_of_node"]
