"""The level of a measurement of power, by the table of the EE HPC WG's methodology.

The thresholds are those of *Energy Efficient High Performance Computing Power Measurement
Methodology*, version 3.0 (working copy), table "Summary of aspects and quality levels" and sections
3.1 to 3.6; github.com/EEHPCWG/PowerMeasurementMethodology, revision ff1d705 of 8 November 2024. The
core phase is the time that the score is computed of: from the release to the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.reading.meters.declared import SUBSYSTEMS, Location
from analysis.report.energy.parts import AspectPart

METHODOLOGY = (
    "EE HPC WG, Energy Efficient High Performance Computing Power Measurement Methodology, version 3.0 "
    "(working copy, revision ff1d705 of 8 November 2024), summary of aspects and quality levels"
)

SHORTEST_CORE_S = 60.0
SAMPLE_S = 1.0
READING_SHARE = 0.1
"""Longest time between two readings, as a share of the core phase."""
FEWEST_READINGS = 10
UNCOVERED_S = 10.0
"""Seconds of the core phase that the readings of a counter may leave out at level 3."""
NODES = 15
FRACTIONS = {1: 1 / 10, 2: 1 / 8}
LEAST_W = {1: 2_000.0, 2: 10_000.0}
ENOUGH_W = 40_000.0
ACCURACIES = {3: 1.0, 2: 2.0, 1: 5.0}
LOCATIONS: dict[Location, tuple[int, str]] = {
    "upstream": (3, "upstream of the conversion of power"),
    "loss-measured": (3, "behind the conversion of power, whose loss was measured at the same time"),
    "loss-sampled": (2, "behind the conversion of power, with a loss measured on one power supply"),
    "loss-from-maker": (1, "behind the conversion of power, with a loss by its maker"),
    "unknown": (0, "not declared"),
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """The facts that the levels depend on. Meters of several kinds: the worst of each."""

    core_s: float
    counters: bool
    """True if every meter counts energy."""
    sampled_s: float | None
    """Interval of the samples: as declared of readings that are means of them, else that of the
    readings ("Sampling and Power Readings": "The power meter must use all power samples taken
    during an interval to compute the average power reading").
    """
    longest_s: float
    """Longest time of the core phase without a reading."""
    ends_s: float
    """Seconds before the first and after the last reading in the core phase."""
    readings: int
    whole_run: bool
    """True if readings span the time before the release, too."""
    idle: bool
    nodes: int
    all_nodes: int
    watts: float
    """Mean power that was measured."""
    measured: frozenset[str]
    """Subsystems that are measured, estimated, and not there."""
    estimated: frozenset[str]
    absent: frozenset[str]
    locations: frozenset[Location]
    accuracy_percent: float | None


def aspects_of(found: Measurement) -> tuple[AspectPart, ...]:
    """Every aspect with its level."""
    return (_granularity(found), _fraction(found), _subsystems(found), _location(found), _accuracy(found))


def level_of(aspects: Sequence[AspectPart]) -> int:
    """The level that all aspects meet."""
    return min(aspect.level for aspect in aspects)


def words_of(level: int, aspects: Sequence[AspectPart]) -> str:
    """The level in a sentence, with what the next one lacks."""
    name = f"Level {level}" if level else "Below Level 1"
    lacking = [f"{aspect.aspect}: {aspect.lacks}" for aspect in aspects if aspect.level == level and aspect.lacks]
    return f"{name} of 3" + (f"; Level {level + 1} lacks {'; '.join(lacking)}" if lacking else "")


def _part(aspect: str, found: str, lacks: dict[int, list[str]]) -> AspectPart:
    """An aspect whose level is the highest of which nothing is lacking, nor of those below."""
    level = next((number - 1 for number in (1, 2, 3) if lacks.get(number)), 3)
    return AspectPart(aspect=aspect, level=level, found=found, lacks=", ".join(lacks.get(level + 1, [])))


def _granularity(found: Measurement) -> AspectPart:
    lacks: dict[int, list[str]] = {1: [], 2: [], 3: []}
    if found.core_s < SHORTEST_CORE_S:
        lacks[1].append("a core phase of at least one minute")
    if not found.counters and (found.sampled_s is None or found.sampled_s > SAMPLE_S):
        lacks[1].append("a sample of power per second")
    if found.longest_s > READING_SHARE * found.core_s:
        lacks[1].append("readings at least every tenth of the core phase, throughout it")
    if not found.whole_run:
        lacks[2].append("readings of the full run, from before the release")
    if found.readings < FEWEST_READINGS:
        lacks[2].append("10 readings in the core phase")
    if not found.idle:
        lacks[2].append("idle power")
    if not found.counters:
        lacks[3].append("continuously integrated energy")
    elif found.ends_s > UNCOVERED_S:
        lacks[3].append("energy of all but 10 s of the core phase")
    kind = "energy counters" if found.counters else "readings of power"
    text = f"{kind}, {found.readings} in the core phase, the longest time without one {found.longest_s:.4g} s"
    return _part("1: granularity, timing and measurements", text, lacks)


def _fraction(found: Measurement) -> AspectPart:
    lacks: dict[int, list[str]] = {1: [], 2: [], 3: []}
    whole = found.nodes >= found.all_nodes
    for level, fraction in FRACTIONS.items():
        enough = found.nodes >= max(NODES, fraction * found.all_nodes) and found.watts >= LEAST_W[level]
        if not (whole or enough or (level == 1 and found.watts >= ENOUGH_W)):
            watts = LEAST_W[level] / 1000
            lacks[level].append(f"all nodes, or 1/{1 / fraction:.0f} of them, {NODES} nodes and {watts:.0f} kW")
    if not whole:
        lacks[3].append("all nodes")
    return _part("2: machine fraction", f"{found.nodes} of {found.all_nodes} nodes, {found.watts / 1000:.4g} kW", lacks)


def _subsystems(found: Measurement) -> AspectPart:
    known = found.measured | found.estimated | found.absent
    lacks: dict[int, list[str]] = {1: [], 2: [], 3: []}
    if found.all_nodes > 1 and "network" not in known:
        lacks[1].append("the network, measured or estimated")
    missing = [name for name in SUBSYSTEMS if name not in known]
    if missing:
        lacks[2].append(f"{', '.join(missing)}: measured, estimated or declared absent")
    unmeasured = [name for name in SUBSYSTEMS if name not in found.measured | found.absent]
    if unmeasured:
        lacks[3].append(f"{', '.join(unmeasured)}: measured or declared absent")
    groups = (("measured", found.measured), ("estimated", found.estimated), ("absent", found.absent))
    words = [f"{', '.join(sorted(names))} {word}" for word, names in groups if names]
    return _part("3: subsystems", "; ".join(["nodes measured", *words]), lacks)


def _location(found: Measurement) -> AspectPart:
    level = min((LOCATIONS[place][0] for place in found.locations), default=0)
    lacks = (
        {level + 1: ["a measurement upstream of the conversion of power, or its loss measured"]} if level < 3 else {}
    )
    text = "; ".join(LOCATIONS[place][1] for place in sorted(found.locations))
    return _part("4: location of measurement", text, lacks)


def _accuracy(found: Measurement) -> AspectPart:
    accuracy = found.accuracy_percent
    lacks = {
        level: [f"an accuracy of {most:g} %"]
        for level, most in ACCURACIES.items()
        if accuracy is None or accuracy > most
    }
    return _part("4b: meter accuracy", "not declared" if accuracy is None else f"{accuracy:g} %", lacks)
