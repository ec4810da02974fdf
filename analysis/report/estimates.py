"""Parts of the report that judge its numbers: intervals, devices, replicas side by side, hours."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Base of all parts of the report."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class IntervalPart(Part):
    """A measure with its 95 % interval."""

    value: float
    """The measure."""
    low: float | None
    """Lower end of the interval; null if there are too few observations."""
    high: float | None
    """Upper end of the interval; null if there are too few observations."""


class StatisticsPart(Part):
    """Uncertainty of the result, and measures that do not depend on the search's choices."""

    score_ops: IntervalPart | None
    """Score: jackknife with Student's t over replicas, or over blocks of time if there is one
    replica (Efron and Tibshirani 1993, chapters 11 and 12); null without a score.
    """
    regulated_score_ops: IntervalPart | None
    """Regulated score: the intervals of score and error combined (MOVER, Zou and Donner 2008); null
    without a score.
    """
    error: IntervalPart | None
    """Error of the best epoch: binomial interval over its evaluated images (Wilson 1927); null
    without an evaluated epoch. That the best of many epochs was chosen is not in it.
    """
    samples: int
    """Replicas or blocks that the score's interval comes from."""
    sampled: str
    """Kind of the samples: replicas, or blocks of 0.1 hour (of a tenth of a shorter run)."""
    initial_ops: float | None
    """Operations per second of one replica while it trains the initial architecture, which is the
    same work in every run: operations of these trials / time of their training and evaluation; null
    if it was not trained.
    """
    mean_growth: float | None
    """Mean of `image_operations` over the initial architecture's, weighted by the operations of the
    trials; null without work.
    """
    second_half: float | None
    """OPS of the second half of the run / OPS of the first; null if the first half has none."""
    points: int
    """Points that the tuner tried."""
    random_points: int
    """Points that the tuner drew at random, for want of results, by the times of the records."""


class FindingPart(Part):
    """A number of the run that its devices cannot have produced, or that nothing supports."""

    kind: str
    """operations, images, telemetry, utilisation, power, energy, or devices."""
    where: str
    """The replica, trial or node."""
    found: str
    """The run's value, in words."""
    limit: str
    """The limit, in words."""


class DevicePart(Part):
    """All devices of one model."""

    name: str
    """Name in the driver; cpu without accelerators."""
    model: str | None
    """The known model; null for CPUs and unknown devices."""
    devices: int
    """Devices of this model; of CPUs, the cores that agents may use."""
    precision_bits: int
    """Width of the arithmetic of most of their operations."""
    peak_ops: float | None
    """Peak of one device at this width, in operations per second, without sparsity; null if
    unknown.
    """
    power_w: float | None
    """Power limit of one device in watts; null if unknown."""
    ops: float
    """Operations per second of all of them over the whole run."""
    share_of_peak: float | None
    """`ops` / (`devices` x `peak_ops`); null if unknown."""
    source: str | None
    """Source of the peak and the power limit."""


class PhysicsPart(Part):
    """Plausibility of the run: its claims against its devices."""

    checked: bool
    """False for a simulated run, which claims nothing about its devices."""
    devices: tuple[DevicePart, ...]
    """Every model of the run."""
    unknown: tuple[str, ...]
    """Accelerators that the table of devices does not have: compared with the fastest that it has.
    """
    findings: tuple[FindingPart, ...]
    """Implausible claims; none in an official run."""


class EffectPart(Part):
    """One replica next to the others of its kind, in one measure."""

    measure: str
    """work (operations per second while it trained and evaluated) or between (time between its
    trainings).
    """
    replica: int
    """Number of the replica."""
    node: str | None
    """Name of its node; null if it is not known."""
    observations: int
    """Trainings, or times between two trainings, that the effect comes from."""
    effect: float
    """Share by which the replica is faster (above 0) or slower (below 0) than the median of its
    kind; of `between`, the share of a usual training and the time after it.
    """
    low: float
    """Lower end of its 95 % interval."""
    high: float
    """Upper end of its 95 % interval."""
    slow: bool
    """True if it is slower by 5 % or more, and by more than chance explains."""
    phase: str | None
    """The difference of a slow replica: quota, clocks, processors, or a phase of the report; else
    null.
    """
    evidence: str | None
    """The seconds or the sample that support it, in words; null if the replica is not slow."""


class ComparisonPart(Part):
    """Comparison of the replicas with each other."""

    compared: int
    """Replicas that were compared; a kind of fewer than four is not, nor is one that has too few
    trainings for the sizes of networks and batches that differ in them.
    """
    kinds: int
    """Kinds of replicas (devices, their number, precision, suite)."""
    effects: tuple[EffectPart, ...]
    """Every effect, the slowest replica first."""

    @property
    def slow(self) -> tuple[EffectPart, ...]:
        """The slow ones."""
        return tuple(part for part in self.effects if part.slow)


class LostPart(Part):
    """Hours in which the machine was there and did no work that counts, of one cause."""

    cause: str
    """start, build, checkpoint, search, storage, idle or down: phases of the report; lost (training
    that died with its unfinished epoch), repeated (epochs that an interrupted training had
    completed before), or unreported (training after the last report that counts).
    """
    hours: float
    """Accelerator hours; replica hours in a run on CPUs."""
    share: float
    """Share of all hours."""


class NodeHoursPart(Part):
    """The hours of one node."""

    node: str
    """Its name; of a replica without one, `replica` and its number."""
    hours: float
    """All hours from the start of the run to its end."""
    productive_h: float
    """Hours of training and evaluation that count and are no repetition."""
    lost: tuple[LostPart, ...]
    """The others, the largest first; shares are of the node's hours."""


class SignPart(Part):
    """A sign that a node or one of its accelerators was not well during the run."""

    node: str
    """Name of the node."""
    device: str | None
    """UUID of the accelerator, else its number; null: the node itself."""
    replica: int | None = None
    """Replica whose control group a CPU quota held up; null: a sign of the node for all of them."""
    kind: str
    """Kind of the sign (`aiperf.machine.health_kinds`), such as slowed or ecc_uncorrected."""
    samples: int
    """Samples that have it: those in which a counter had grown, or in which the state was so."""
    working: int
    """Those of them that lie in work of the node."""
    amount: float | None
    """Growth of a counter within the run, or the least number of lanes; null for other states."""
    first_t_s: float
    """Seconds after the start of the run at which it was first seen."""
    grave: bool
    """True if no healthy node has it, or if it slowed work down; it is a notice, too."""
    text: str
    """The sign in words."""


class HealthPart(Part):
    """Health of the nodes, as far as their samples have it."""

    nodes: int
    """Nodes with samples."""
    recorded: dict[str, int]
    """Number of nodes whose samples have values, by kind of sign."""
    not_recorded: tuple[str, ...]
    """Kinds of which no sample has a value."""
    signs: tuple[SignPart, ...]
    """Signs within the run, the grave ones first."""


class DescribedPart(Part):
    """A field of the system's description."""

    field: str
    """Name by MLCommons' system description, or of a key of `[system]` or of system.json."""
    words: str
    """Meaning of the field."""
    text: str
    """The known values; those in which nodes differ have the number of nodes that have them."""
    source: Literal["declared", "measured"]
    """declared: `[system]` of the configuration says so; measured: the nodes found it out."""


class PlacePart(Part):
    """Ranks of a replica that ran on the same node and CPUs in its last training."""

    replica: int
    """Number of the replica."""
    ranks: str
    """Numbers of the ranks, such as 0-3."""
    node: str
    """Host name."""
    cpus: str
    """CPUs on which each of them might run, such as 0-15,32-47."""
    cpu_count: int
    """Number of these CPUs."""
    domains: str
    """Memory domains (NUMA nodes) of these CPUs; empty: the kernel did not say."""
    sharing: int
    """Other ranks on the node, of all replicas, that might run on some of these CPUs."""
    elsewhere: int
    """Earlier trainings of the replica whose ranks ran elsewhere."""
    remark: str
    """Difference from the CPUs that the replica's agent might use; empty: none is known."""


class CostPart(Part):
    """Node hours of the run, and their price."""

    nodes: int
    """Nodes of the replicas that took part; one that several share counts once."""
    node_hours: float
    """`nodes` x hours from the start of the run to its end."""
    amount: float | None
    """Price of the node hours and of the energy, by `price.node_hour` and `price.kwh`; null if a
    price is not stated, or if energy has a price and was not measured on every node. The energy
    is that of the meters outside of the nodes if there are any.
    """
    currency: str | None
    """`price.currency`; null if it is not stated."""
    source: str | None
    """`price.source`; null if it is not stated."""


class GoodputPart(Part):
    """Productive and lost hours: together they are the wall time of the run times its devices."""

    unit: str
    """accelerator or replica: the thing whose hours are counted."""
    hours: float
    """Hours of all from the start of the run to its end."""
    productive_h: float
    """Hours of training and evaluation that count and are no repetition."""
    share: float | None
    """`productive_h` / `hours`; null if the run never started."""
    lost: tuple[LostPart, ...]
    """Lost hours by cause, the largest first."""
    nodes: tuple[NodeHoursPart, ...]
    """Hours of each node, the least productive first."""
    interruptions: int
    """Losses of replicas that had come, failures of trainings, and resumptions of the run."""
    mean_time_between_interruptions_h: float | None
    """Hours of the run / `interruptions`; null without any."""
