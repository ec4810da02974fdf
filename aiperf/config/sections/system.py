"""The system in the words of the people who run it: what no node can find out."""

from __future__ import annotations

from pydantic import Field

from aiperf.config.sections.base import Section
from aiperf.config.texts import Line


class SystemSection(Section):
    """The system, as people describe it. Every key is optional, and shown as declared."""

    submitter: Line | None = None
    """Organisation that submits the result."""
    site: Line | None = None
    """Place of the system, such as a centre and its city."""
    vendor: Line | None = None
    """Maker of the system, and its product name."""
    year: int | None = Field(None, ge=1, le=9999)
    """Year of its installation."""
    price: Line | None = None
    """Price of the system with its currency and date, such as `12 million EUR, 2025`."""
    cooling: Line | None = None
    """Cooling, such as `air` or `direct liquid, 35 degrees`."""
    interconnect: Line | None = None
    """Network between the nodes, such as `4 x InfiniBand NDR 400`."""
    topology: Line | None = None
    """Topology of that network, such as `fat tree, 2:1`."""
    storage: Line | None = None
    """File system of data and run, such as `Lustre on NVMe`."""
    storage_capacity: Line | None = None
    """Its capacity, such as `2 PB`."""
    memory: Line | None = None
    """Memory of a node, such as `24 x 64 GB DDR5-5600`."""
    processor_interconnect: Line | None = None
    """Links between the processors of a node, such as `4 x UPI, 16 GT/s`."""
    accelerator_interconnect: Line | None = None
    """Links between the accelerators of a node, such as `NVLink 4, 900 GB/s`."""
    accelerator_topology: Line | None = None
    """Topology of those links, such as `all to all by NVSwitch`."""
    accelerator_memory: Line | None = None
    """Memory of an accelerator, such as `5 stacks of HBM3, 3.35 TB/s`."""
    accelerator_caches: Line | None = None
    """Memories on the chip of an accelerator, such as `L2 50 MB`."""
    accelerator_clock: Line | None = None
    """Clock of an accelerator, such as `1980 MHz`."""
    notes: Line | None = None
    """Anything else about the hardware."""
    software_notes: Line | None = None
    """Anything else about the software."""
