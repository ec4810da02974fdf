"""Counters of energy of this node: those of CPU packages, and of an accelerator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiperf.host import this_host
from aiperf.machine.vendors import vendor_of_node

RAPL = Path("sys/class/powercap")
"""Linux's energy counters of CPU packages, usually readable by root alone."""

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


class Counter(Protocol):
    """A counter of energy."""

    @property
    def least_s(self) -> float:
        """The shortest time whose energy it tells apart, in seconds."""

    def read(self) -> Sequence[float] | None:
        """The values of its parts; None if it cannot be read."""

    def joules(self, before: Sequence[float], after: Sequence[float]) -> float:
        """Joules between two readings."""


@dataclass(frozen=True)
class CpuPackages:
    """All CPU packages of the node, by the kernel's counters, which have microjoules."""

    folder: Path
    least_s: float = 0.05
    """The counters move every millisecond (Intel SDM, volume 3, 15.10)."""

    @property
    def packages(self) -> list[Path]:
        """The folder of each package. Raises OSError and ValueError if a zone has no name."""
        # Two colons: a part of a package. Cores are in its counter, memory may not be.
        # Next to the packages stands `psys`, the whole platform, which contains them.
        zones = [zone for zone in sorted(self.folder.glob("intel-rapl:*")) if zone.name.count(":") == 1]
        return [zone for zone in zones if (zone / "name").read_text(encoding="ascii").startswith("package")]

    def read(self) -> Sequence[float] | None:
        """Microjoules of each package. None without packages; OSError and ValueError are errors."""
        return [_number(package / "energy_uj") for package in self.packages] or None

    def joules(self, before: Sequence[float], after: Sequence[float]) -> float:
        """Joules between two readings, of which none is longer than a range."""
        ranges = [_number(package / "max_energy_range_uj") for package in self.packages]
        # The counters wrap around at `max_energy_range_uj` (Linux, power capping framework).
        used = [(new - old) % (span + 1) for new, old, span in zip(after, before, ranges, strict=True)]
        return sum(used) / 1e6


@dataclass(frozen=True)
class AcceleratorCounter:
    """One accelerator, by its number in its driver, whose counter has millijoules."""

    index: int
    least_s: float = 1.0
    """Drivers renew the counter about ten times a second."""

    def read(self) -> Sequence[float] | None:
        """The counter; None if the accelerator has none."""
        vendor = vendor_of_node()
        samples = vendor.sample() if vendor is not None else []
        found = [sample[ENERGY] for sample in samples if sample.get("index") == self.index and ENERGY in sample]
        return found or None

    def joules(self, before: Sequence[float], after: Sequence[float]) -> float:
        """Joules between two readings."""
        return (after[0] - before[0]) / 1000


def cpu_packages() -> CpuPackages:
    """The counter of this node's CPU packages."""
    return CpuPackages(this_host().root / RAPL)


def energy_of(counter: Counter, seconds: Callable[[], float]) -> Callable[[], float | None]:
    """Begin to count; the result gives the joules since, None if they cannot be told."""
    before, began_s = _read(counter), seconds()

    def used() -> float | None:
        after = _read(counter)
        if before is None or after is None or len(after) != len(before) or seconds() - began_s < counter.least_s:
            return None
        try:
            joules = counter.joules(before, after)
        except (OSError, ValueError):
            return None
        # A counter that stood still has measured nothing, and one that fell was reset.
        return joules if joules > 0 else None

    return used


def _read(counter: Counter) -> Sequence[float] | None:
    try:
        return counter.read()
    except (OSError, ValueError):
        return None


def _number(file: Path) -> int:
    return int(file.read_text(encoding="ascii"))
