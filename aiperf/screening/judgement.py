"""The judgement of a screening: which device of which node is slower than its equals, and why.

Pure functions. Devices are compared within their kind. A value is bad if it is more than a share
below the median of its kind and outside the spread of the others, or less than half of what each of
the others has, in every pass; or below the floor of a baseline. The spread is the median absolute
deviation, as of a normal distribution (times 1.4826; Rousseeuw and Croux 1993, section 1), and not
less than what the measurements themselves scattered by. A cause is named if a fact supports it, in
which the device differs from its equals.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from aiperf.screening.messages import Row


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


NORMAL = 1.4826
"""Standard deviation of a normal distribution in median absolute deviations."""

PERCENTILES = 2.563
"""Standard deviations between the 10th and 90th percentile of a normal distribution."""

FEWEST = 3
"""Fewest devices of a kind that can be compared: of two, none is known to be the slow one."""

LIMITS = ((3, 56.0), (4, 11.0), (5, 14.0), (6, 8.0), (7, 8.7), (8, 6.7), (10, 6.9), (12, 6.1), (16, 5.6), (24, 5.0))
"""Deviations below the median by the number of devices from which on they are rare.

The smallest of this many normal values is further away in one case of a hundred (drawn 200,000
times for each number); the spread of few values is often small by chance.
"""

MANY = 5.0
"""The same for more devices than LIMITS has: up to 4,096, less than one case of a hundred."""

FAR_BELOW = 0.5
"""Share of the lowest of the others below which a value is bad whatever the spread (our choice).

The spread of few values that scatter, such as those of a network, reaches down to 0.
"""

LOWER_SHARE = 0.05
"""Share below the median from which on a device is bad (this project's choice)."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A row, and the node that it is of."""

    node: str
    row: Row


@dataclass(frozen=True, slots=True)
class Finding:
    """A bad value: node, device, measure, value, and what the others have."""

    node: str
    device: str
    kind: str
    measure: str
    value: float
    typical: float
    """Median of the kind; of a device below a floor alone, the floor."""
    compared: int
    """Devices of the kind that were compared, this one included."""
    reason: str
    """`below its equals`, or `below the floor`."""

    @property
    def share(self) -> float:
        """The value as a share of what the others have."""
        return self.value / self.typical


def limit_for(devices: int) -> float:
    """The deviations below the median that few of this many normal values exceed."""
    for (low, limit), (high, _) in pairwise(LIMITS):
        if low <= devices < high:
            return limit
    return LIMITS[-1][1] if devices == LIMITS[-1][0] else MANY


def judge(
    passes: Sequence[Iterable[Measured]],
    lower_share: float = LOWER_SHARE,
    floors: Mapping[tuple[str, str], float] | None = None,
) -> list[Finding]:
    """The bad values, worst first. A value is bad only if it is bad in every pass that has it.

    `floors` are the least values by kind and measure.
    """
    found = [_judge_pass(list(measured), lower_share, floors or {}) for measured in passes]
    first, *others = found if found else [{}]
    kept = [finding for key, finding in first.items() if all(key in other for other in others)]
    return sorted(kept, key=lambda finding: (finding.share, finding.node, finding.device, finding.measure))


def _judge_pass(
    measured: list[Measured], lower_share: float, floors: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str, str], Finding]:
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for item in measured:
        if item.row.value is not None:
            groups[item.row.kind, item.row.measure].append(item)
    found: dict[tuple[str, str, str], Finding] = {}
    for key, items in groups.items():
        lowest, middle = least_normal([item.row for item in items], lower_share)
        floor = floors.get(key, 0.0)
        for item in items:
            value, row = item.row.value or 0.0, item.row
            if value < lowest or value < floor:
                typical, reason = (middle, "below its equals") if value < lowest else (floor, "below the floor")
                found[item.node, row.device, row.measure] = Finding(
                    item.node, row.device, row.kind, row.measure, value, typical, len(items), reason
                )
    return found


def least_normal(rows: Sequence[Row], lower_share: float) -> tuple[float, float]:
    """The least value that is not bad among equals, and the median; (0, median) if too few."""
    values = [row.value for row in rows if row.value is not None]
    middle = median(values)
    if len(values) < FEWEST:
        return 0.0, middle
    between = NORMAL * median(abs(value - middle) for value in values)
    within = median(row.spread for row in rows) * middle / PERCENTILES
    spread = max(between, within)
    # Both must hold, a difference that matters and one that chance does not explain: hence the
    # lower of the two limits. The second lowest value is the lowest of the others for the lowest
    # one.
    outside = min(middle * (1 - lower_share), middle - limit_for(len(values)) * spread)
    return max(0.0, outside, FAR_BELOW * sorted(values)[1]), middle
