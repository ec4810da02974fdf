"""Parts of the report about replicas that are slower than their like, and about lost hours."""

from __future__ import annotations

from analysis.report.estimates import Part


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
    """What differs, of a slow replica: input, search, storage, clocks, or a phase of the report;
    else null.
    """
    evidence: str | None
    """The seconds or the sample that support it, in words; null if the replica is not slow."""


class ComparisonPart(Part):
    """Comparison of the replicas with each other."""

    compared: int
    """Replicas that were compared; a kind of fewer than four is not."""
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
