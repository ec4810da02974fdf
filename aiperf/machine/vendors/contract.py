"""The contract of a vendor: the accelerators of this node as their driver describes them.

Nothing here loads a framework, which would reserve the accelerators' memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from aiperf.config.sections.base import Precision

Fields = dict[str, Any]
"""A part of a telemetry sample, by the names that NVIDIA's DCGM gives to such fields."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU. `index` is its number in the driver."""

    index: int
    name: str
    memory_bytes: int
    precision: Precision
    """The fastest arithmetic of 16 bits or more that it has matrix units for."""
    driver: str
    known_as: str = ""
    """Its word in the variable that chooses devices, if that names it by UUID (or a slice of it).
    """

    @property
    def word(self) -> str:
        """The word that stands for it in the variable that chooses devices."""
        return self.known_as or str(self.index)


LEAST_MEMORY_BYTES = 8 << 30
"""Of a GPU that may also be made for screens: a smaller one is, or is a part of the CPU."""


class Vendor(Protocol):
    """The accelerators of one maker. No method raises: what a driver does not tell is left out."""

    hides: str
    """The setting of the environment that hides all of them, as a shell takes it."""
    build: str
    """Where a framework's build for them is found, for messages."""

    @classmethod
    def accelerators(cls) -> tuple[Accelerator, ...]:
        """All of this node; none without the driver."""

    @classmethod
    def visible(cls, found: Sequence[Accelerator], environment: Mapping[str, str]) -> tuple[Accelerator, ...]:
        """Those that this environment lets a process use, in its order."""

    @classmethod
    def choice(cls, own: Sequence[Accelerator]) -> dict[str, str]:
        """The environment in which a process sees only these."""

    @classmethod
    def installed(cls, root: Path) -> int:
        """The accelerators by the files of the driver, whatever this process may use of them."""

    @classmethod
    def sample(cls) -> list[Fields]:
        """One entry for each, with `index` and the fields that its driver supports."""


def words(text: str) -> list[str]:
    """The words of a list separated by commas."""
    return [word.strip() for word in text.split(",")]


def chosen(found: Sequence[Accelerator], allowed: str | None) -> tuple[Accelerator, ...]:
    """Those that a list of numbers names; the first word that names none ends it.

    None, a variable that is not set, lets all be used.
    """
    if allowed is None:
        return tuple(found)
    result: list[Accelerator] = []
    for word in words(allowed):
        if not word.isdigit() or int(word) >= len(found):
            break
        result.append(found[int(word)])
    return tuple(result)
