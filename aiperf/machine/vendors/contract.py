"""The contract of a vendor: the accelerators of this node as their driver describes them.

Nothing here loads a framework, which would reserve the accelerators' memory.
"""

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from aiperf.config.sections.base import Precision
from aiperf.errors import EnvironmentNotReadyError
from aiperf.host import this_host

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
    exclusive: bool = False
    """True if its driver lets one process use it at a time: no ranks warm up next to others."""
    known_as: str = ""
    """Word that stands for the GPU in the variable that chooses devices, if that names UUIDs (or a
    slice of the GPU)."""

    uuid: str = ""
    address: str = ""
    """PCI address as Linux names it, such as "0000:3b:00.0"; empty: not known."""

    @property
    def word(self) -> str:
        """The word that stands for it in the variable that chooses devices."""
        return self.known_as or str(self.index)

    @property
    def is_slice(self) -> bool:
        """True for a slice of a GPU (MIG). NCCL joins no two ranks on slices of one GPU."""
        return self.known_as.startswith("MIG-")


LEAST_MEMORY_BYTES = 8 << 30
"""Least memory of a GPU for training: smaller ones drive screens or are part of a CPU."""


class Vendor(Protocol):
    """The accelerators of one maker. Facts that a driver does not report are left out."""

    hides: str
    """The setting of the environment that hides all of them, as a shell takes it."""

    @classmethod
    def build(cls, framework: str) -> str:
        """The way to install a framework's build for these GPUs, for messages."""

    @classmethod
    def accelerators(cls) -> tuple[Accelerator, ...]:
        """List the GPUs of this node that answer; none without the driver."""

    @classmethod
    def lost(cls) -> tuple[str, ...]:
        """List the GPUs that the driver names and that do not answer, each with its error."""

    @classmethod
    def visible(cls, found: Sequence[Accelerator], environment: Mapping[str, str]) -> tuple[Accelerator, ...]:
        """Select the GPUs that this environment lets a process use, in its order.

        Raises EnvironmentNotReadyError if it cannot be read.
        """

    @classmethod
    def choice(cls, own: Sequence[Accelerator]) -> dict[str, str]:
        """The environment in which a process sees only these."""

    @classmethod
    def installed(cls, root: Path) -> int:
        """The accelerators by the files of the driver, whatever this process may use of them."""

    @classmethod
    def sample(cls) -> list[Fields]:
        """One entry for each, with `index` and the fields that its driver supports."""

    @classmethod
    def describe(cls) -> dict[str, str]:
        """Facts of their clocks and of the links between them; those that the driver has."""


MOST_CARDS = 1024
MOST_BYTES = 1 << 50
MOST_VALUE = 1e18
"""Upper limit for every fact; larger values are mistakes of a driver."""

MOST_TEXT = 200

HIDING = re.compile(r"-\d+|NoDevFiles|none|void|", re.IGNORECASE)
"""Words that name no accelerator, so that a process sees those before them only."""


def asked(read: Callable[..., Any], *arguments: Any) -> Any:
    """An answer; None for a question that this card or this version of its library does not know.

    The errors of makers' libraries have no base that all versions share.
    """
    try:
        return read(*arguments)
    except Exception:
        return None


class Once:
    """A maker's library that is asked each question once: for the facts of one sample.

    An answer is kept, or the error in place of one. Several facts come from one answer, and a
    question may take milliseconds.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._kept: dict[tuple[Any, ...], tuple[Any, Exception | None]] = {}

    def __getattr__(self, name: str) -> Any:
        """A function of the library that keeps its answers; anything else as it is."""
        found = getattr(self._library, name)
        return found if isinstance(found, type) or not callable(found) else partial(self._ask, name, found)

    def _ask(self, name: str, question: Callable[..., Any], *arguments: Any) -> Any:
        key = (name, *(tuple(part) if isinstance(part, list) else part for part in arguments))
        if key not in self._kept:
            try:
                self._kept[key] = question(*arguments), None
            except Exception as error:
                self._kept[key] = None, error
        answer, refusal = self._kept[key]
        if refusal is not None:
            raise refusal
        return answer


def is_given(file: Path) -> bool:
    """True unless a container or a control group keeps a device's file from this process.

    One that only its permissions close is given: the framework's complaint is to be heard.
    """
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno != errno.EPERM
    return True


def number(value: Any, most: float = MOST_VALUE) -> float | None:
    """A number that a driver gives; None for a text such as "N/A" and for what cannot be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return None
    return value


def text(value: Any, otherwise: str = "") -> str:
    """A text that a driver gives, or its bytes, without what cannot be printed."""
    found = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(found, str) or found.strip() in ("", "N/A", "[N/A]"):
        return otherwise
    return "".join(character for character in found.strip()[:MOST_TEXT] if character.isprintable())


def pci_address(value: Any) -> str:
    """A PCI address that a driver gives, as Linux names it; empty if it is none.

    NVIDIA's library writes the domain with eight digits, Linux with as many as it needs, and at
    least four.
    """
    found = re.fullmatch(r"([0-9a-f]{4,8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", text(value).lower(), re.ASCII)
    return f"{int(found[1], 16):04x}{found[2]}" if found else ""


def memory_of(value: Any) -> int:
    """Bytes of a card's memory; the node's if its driver does not say, as of shared memory."""
    return int(number(value, MOST_BYTES) or 0) or this_host().memory().limit


def fields_of(index: int, facts: Mapping[str, Callable[[], Any]]) -> Fields:
    """Read a card's part of a sample, each fact by itself; one that fails costs no other."""
    fields: Fields = {"index": index}
    for name, read in facts.items():
        value = asked(read)
        known = text(value) or None if name == "uuid" else number(value)
        if known is not None:
            fields[name] = known
    return fields


def words(text: str) -> list[str]:
    """The words of a list separated by commas."""
    return [word.strip() for word in text.split(",")]


def chosen(
    found: Sequence[Accelerator],
    variable: str,
    allowed: str | None,
    numbers: Mapping[int, Accelerator],
    by_uuid: Callable[[str], Accelerator | None] = lambda _: None,
) -> tuple[Accelerator, ...]:
    """Select the GPUs that a list of numbers and UUIDs names, each once; None lets all be used.

    A number beyond the last one, or a word that hides, ends the list, as for the makers' runtimes.
    `by_uuid` finds one that is not among those found. Raises EnvironmentNotReadyError for a word
    that cannot be read: to take it for the end of the list would hide accelerators without a word.
    """
    if allowed is None:
        return tuple(found)
    result: dict[str, Accelerator] = {}
    for word in words(allowed):
        if HIDING.fullmatch(word):
            break
        if re.fullmatch(r"\d{1,9}", word, re.ASCII):
            # CUDA ignores everything behind the first invalid number (CUDA C++ Programming Guide,
            # CUDA_VISIBLE_DEVICES). A number between others is that of a card that is lost.
            if int(word) not in numbers:
                if int(word) < max(numbers, default=0):
                    continue
                break
            one: Accelerator | None = numbers[int(word)]
        else:
            one = _named(found, word) or by_uuid(word)
        if one is None:
            problem = f"{variable}={allowed}: {word!r} is no accelerator of this node"
            raise EnvironmentNotReadyError([f"{problem}; name them by number or UUID, or type: unset {variable}"])
        result.setdefault(one.word, one)
    return tuple(result.values())


def _named(found: Sequence[Accelerator], word: str) -> Accelerator | None:
    """The one whose UUID begins so; of several (slices of one card, say) the first."""
    same = [each for each in found if word in (each.known_as, each.uuid)]
    alike = [each for each in found if each.uuid.startswith(word) or each.known_as.startswith(word)]
    return next(iter(same or alike), None) if len(word) >= SHORTEST_UUID else None


SHORTEST_UUID = 5
"""Characters of the beginning of a UUID that can stand for it."""
