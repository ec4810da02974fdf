"""Parts of the report about energy."""

from analysis.report.estimates import Part

J_PER_KWH = 3.6e6

ACCELERATORS, CPUS = "accelerators", "CPU packages"
"""Kinds of sensors inside of the nodes, as `EnergyPart.basis` names them."""


class AspectPart(Part):
    """One aspect of the measurement, by the methodology of the EE HPC WG."""

    aspect: str
    """1 (granularity, timing, measurements), 2 (machine fraction), 3 (subsystems), 4 (location) or
    4b (accuracy), with its name.
    """
    level: int
    """The highest level that it meets: 3, 2, 1, or 0 for none."""
    found: str
    """The fact that was found or declared, in words."""
    lacks: str
    """The further requirements of the next level; empty for level 3."""


class MeterPart(Part):
    """One meter, or one outlet of a meter."""

    name: str
    """Its file and column."""
    device: str
    """Maker and model, as declared; empty if not declared."""
    scope: str
    """node, rack or facility, as declared."""
    nodes: int
    """Nodes of the run behind it."""
    other_nodes: int
    """Nodes behind it, as declared, that are not of the run."""
    includes: tuple[str, ...]
    """Subsystems behind it, as declared: network, storage, head, cooling."""
    joules: float
    """Joules from the start to the end of the run."""
    readings: int
    """Readings within the run."""
    interval_s: float
    """Usual time between two readings."""
    longest_s: float
    """Longest time within the run without a reading."""
    covered_share: float
    """Share of the run of which readings say what was used; the rest is estimated from those around
    it: a gap in readings of power, a reset of a counter.
    """
    resets: int
    """Times at which its counter began again."""
    unreadable: int
    """Rows without a time or a value."""
    idle_w: float | None
    """Mean power while the nodes were idle, in the time that the owner declared; null without."""


class MeteredPart(Part):
    """Energy by meters outside of the nodes. Scope, location and accuracy are the owner's words."""

    joules: float
    """Joules of the run: those of the meters, extrapolated to all nodes, and the estimates."""
    measured_j: float
    """Joules that the meters measured."""
    estimated_j: float
    """Joules of subsystems that are estimated, as declared."""
    mean_w: float
    """`joules` over the duration of the run."""
    idle_w: float | None
    """Idle power of all meters, extrapolated likewise; null if a meter has none."""
    idle_share: float | None
    """`idle_w` over `mean_w`."""
    scope: str
    """Nodes and subsystems of which the energy is."""
    nodes_measured: int
    """Nodes of the run behind meters."""
    nodes: int
    """Nodes of the run."""
    level: int
    """Level of the measurement: the lowest of its aspects; 0 below Level 1."""
    words: str
    """The level in words."""
    methodology: str
    """The document that defines the levels, with its version."""
    aspects: tuple[AspectPart, ...]
    """The aspects that lead to the level."""
    meters: tuple[MeterPart, ...]
    """The meters, by name."""


class FacilityPart(Part):
    """Energy of the facility and carbon dioxide, by the owner's figures (section `energy`).

    They are declared, and no record says whether they are right.
    """

    pue: float | None
    """Power usage effectiveness: power of the facility over that of its computers; null if not
    declared.
    """
    joules: float | None
    """Joules of the run x `pue`, those of meters of scope `facility` x 1; null without either."""
    mean_w: float | None
    """`joules` over the duration of the run."""
    co2_g_per_kwh: float | None
    """Grams of CO2 equivalents of a kilowatt-hour; null if not declared."""
    co2_kg: float | None
    """Kilograms of CO2 equivalents: of `joules` if a PUE is declared, else of the run's."""
    source: str
    """Source of both figures, as declared; empty if not declared."""


class UsagePart(Part):
    """Use of one node within the run; accelerator figures are means over its accelerators."""

    host: str
    """Name of the node."""
    samples: int
    """Samples taken within the run."""
    accelerators: int
    """Accelerators of the node."""
    accelerator_percent: float | None
    """Use of the accelerators in percent, mean over time; null if it was not sampled."""
    accelerator_memory_percent: float | None
    """Use of the accelerators' memory in percent, mean over time; null if it was not sampled."""
    multiprocessors_percent: float | None = None
    """Cycles in which the accelerators' multiprocessors had work, in percent, mean over time; null
    without NVIDIA's DCGM on the node.
    """
    tensor_cores_percent: float | None = None
    """Cycles in which their tensor cores worked, likewise."""
    cpu_percent: float | None
    """Use of the CPUs in percent, mean over time; null if it was not sampled."""
    memory_peak_bytes: int | None
    """Largest use of main memory in bytes; null if it was not sampled."""
    energy_j: float | None
    """Joules of accelerators and CPU packages, of those that report; null if none does."""


class EnergyPart(Part):
    """Energy from the start of the run to its end."""

    accelerators_j: float | None
    """Joules of all accelerators: from their energy counters, else power integrated by the
    trapezoidal rule; null if none reports either.
    """
    cpus_j: float | None
    """Joules of all CPU packages, from the kernel's counters; null if none reports them."""
    hosts_measured: int
    """Nodes that report the energy of accelerators or CPUs."""
    hosts: int
    """Nodes that were sampled."""
    uncovered_share: float | None = None
    """Share of the accelerators' time of which their energy counters do not say what was used:
    before the first sample, after the last one (of a lost card, too), around a reset, which is
    estimated from the power before and after it; null without counters.
    """
    operations_per_joule: float | None
    """`operations_total` / joules: those of `metered`, or without it those that `basis` names, or
    without a basis `accelerators_j` + `cpus_j`; null without energy.
    """
    best_error_j: float | None
    """Joules until the run's error was reached, by the same source; null without energy or any
    evaluated epoch.
    """
    official_error_j: float | None
    """Joules until the error was at most 0.30, by the same source; null without energy or if it
    never was.
    """
    metered: MeteredPart | None = None
    """Energy by meters outside of the nodes; null without any."""
    facility: FacilityPart | None = None
    """Energy of the facility and CO2, as declared; null if nothing is declared."""
    basis: str = ""
    """Source, scope and level of the joules in words: `operations_per_joule` can be compared with
    those of the same basis alone. It names sensors that every node has, of accelerators every node
    with any. Empty without energy, in reports of earlier versions, and if the energy of some nodes,
    or of one of their accelerators, is missing.
    """
    problems: tuple[str, ...] = ()
    """The parts of the files of meters that cannot be used, with reasons."""

    @property
    def comparable_per_joule(self) -> float | None:
        """`operations_per_joule` if it can be compared with others of its basis; else None."""
        return self.operations_per_joule if self.basis else None

    @property
    def sensors_j(self) -> float | None:
        """Joules of the sensors that `basis` names; None if it names none."""
        parts = {ACCELERATORS: self.accelerators_j, CPUS: self.cpus_j}
        named = [joules for name, joules in parts.items() if name in self.basis and joules is not None]
        return sum(named) if named else None
