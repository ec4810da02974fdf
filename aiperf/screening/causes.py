"""The causes of a low rate that facts support: facts in which a device differs from its equals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of a device, and the difference from its equals that makes it a cause."""

    text: str
    """In words, with the value and that of the others."""
    low: bool = False
    """True if a cause is a value below that of the others, else above."""
    share: float = 0.0
    """Least difference from the median of the others, as a share of it."""
    least: float = 0.0
    """Least difference from the median of the others, in the fact's unit."""

    def explains(self, value: float, others: float) -> bool:
        """True if the value differs from that of the others in the way of a cause."""
        difference = others - value if self.low else value - others
        return difference > max(self.least, self.share * abs(others))


FACTS: dict[str, Fact] = {
    "held_by_quota": Fact(
        "the CPU quota of its control group held its threads up {0:.0%} of the time (the others {1:.0%})", least=0.05
    ),
    "load_before": Fact("other processes were at work before: load {0:.1f} a CPU (the others {1:.1f})", least=0.5),
    "sm_clock": Fact("its clock is at {0:.0f} MHz (the others {1:.0f})", low=True, share=0.05),
    "memory_clock": Fact("its memory's clock is at {0:.0f} MHz (the others {1:.0f})", low=True, share=0.05),
    "temperature": Fact("it is at {0:.0f} degrees Celsius (the others {1:.0f})", least=10),
}
"""Facts by name, each from the kernel or the driver."""

DCGM = {
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock",
    "DCGM_FI_DEV_MEM_CLOCK": "memory_clock",
    "DCGM_FI_DEV_GPU_TEMP": "temperature",
}
"""Facts among the fields of a telemetry sample."""


def causes(facts: Mapping[str, float], others: Sequence[Mapping[str, float]]) -> list[str]:
    """The facts of a device that differ from those of its equals as a cause would, in words."""
    found = []
    for name, fact in FACTS.items():
        values = [other[name] for other in others if name in other]
        if name in facts and values and fact.explains(facts[name], median(values)):
            found.append(fact.text.format(facts[name], median(values)))
    return found
