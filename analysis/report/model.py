"""The report as data: the content of report.json. Its JSON schema is `report.schema.json`."""

import json
from typing import Any

from aiperf.rules.official_run import RULES_VERSION, Status
from aiperf.run_directory.state import State
from analysis.report.energy.parts import EnergyPart, UsagePart
from analysis.report.estimates import (
    ComparisonPart,
    CostPart,
    DescribedPart,
    GoodputPart,
    HealthPart,
    Part,
    PhysicsPart,
    PlacePart,
    StatisticsPart,
)
from analysis.report.hybrid.parts import HybridPart
from analysis.report.roofline.parts import RooflinePart
from analysis.report.workloads import WorkloadPart


class ViolationPart(Part):
    """A rule that is not met."""

    rule: str
    """Name of the rule."""
    found: str
    """The run's value, in words."""
    required: str
    """The value that the rule asks for, in words."""


class RulePart(ViolationPart):
    """One rule, with the run's value next to the required one."""

    group: str
    """setting (configuration), outcome (training), or integrity (run and records)."""
    passed: bool
    """True if the rule is met."""


class FailurePart(Part):
    """A trial that failed, or a replica that was lost, with the trial that it trained."""

    t_s: float | None
    """Seconds after the start of the run; null if the run never started."""
    what: str
    """The trial or replica, and its fate."""
    reason: str
    """The cause, as recorded; empty if none was recorded."""
    lost_operations: int
    """Operations of the trial's unfinished epoch, which do not count because of the failure."""
    replica: int | None = None
    """The replica that was lost or never came; null if a trial alone failed."""


class CountsPart(Part):
    """Numbers of trials and of failures, for lists that show no single ones."""

    trials: int
    """Trials of the run."""
    failures: int
    """Trials that failed or were lost, and replicas that were lost or never came. A replica that is
    lost with its trial is one failure.
    """
    replicas_lost: int
    """Those failures that are of replicas; one that is lost twice is two."""


class DeviationPart(Part):
    """A setting that is not the default; an official run has the default."""

    key: str
    """Key of the configuration, as section.name."""
    value: str
    """Value in force, as JSON."""
    default: str
    """Default value, as JSON."""


class TimelinePart(Part):
    """The result as if the run had ended at this time: every 0.1 hour, and at the end."""

    t_s: float
    """Seconds after the start of the run."""
    ops: float
    """Score: operations per second of wall time since the start."""
    error: float
    """Error of the best epoch completed by then."""
    regulated_ops: float
    """Regulated score: -ln(error) x ops."""


class TrialPart(Part):
    """One trial: one training of one architecture with one set of hyperparameters."""

    id: int
    """Number of the trial, from 1 in the order of issue."""
    replica: int
    """The replica that trained it."""
    round: int
    """Round of the replica, from 1."""
    architecture: str | None
    """Canonical hash of the architecture; null, as more fields below, if training never started."""
    parent: str | None
    """Hash of the architecture that it was morphed from; null for the initial one."""
    morphs: tuple[dict[str, str | int], ...]
    """Morphs from the parent, in order."""
    weights_from: int | None
    """The trial whose weights were inherited; null: He initialisation."""
    point: int
    """Number in its round: 0 is the round's own training, later ones tune hyperparameters."""
    base: int | None
    """Trial whose architecture is trained again, for point > 0."""
    hyperparameters: dict[str, int | float | str]
    """Hyperparameters by name."""
    epochs: int
    """Completed epochs that count."""
    best_accuracy: float | None
    """Best measured top-1 validation accuracy of an epoch that counts; null without any."""
    predicted_accuracy: float | None
    """Accuracy that the search used in place of the measured one, in warm-up rounds; else null."""
    images_trained: int
    """Trained images that count."""
    images_evaluated: int
    """Evaluated images that count."""
    operations: int
    """Operations that count: images trained x (forward + backward) + images evaluated x forward."""
    lost_operations: int
    """Operations of an unfinished epoch that do not count, because the trial failed or was lost."""
    precision: str | None
    """Arithmetic of the layers: float32, mixed_bfloat16 or mixed_float16."""
    state: str
    """completed, early_stop, stopped (by the run's end), failed, lost, or running."""
    failure_reason: str | None
    """The cause, if the state is failed or lost."""
    started_s: float | None
    """Seconds from the start of the run to the first record of the training."""
    ended_s: float | None
    """Seconds from the start of the run to the trial's end, failure or loss within the run."""
    image_operations: int | None
    """Operations of training one image: forward and backward."""
    parameters: int | None
    """Weights of the architecture."""
    depth: int | None
    """Convolutions and dense layers of the architecture."""
    share_of_ceiling: float | None = None
    """Roofline time of its images / time of its training and evaluation; null if not known."""
    best_training_accuracy: float | None = None
    """Best top-1 accuracy on training images as they were trained, of an epoch that counts; null if
    none counted them.
    """


class HyperparameterPart(Part):
    """One value of one hyperparameter, over the points of the hyperparameter search that had it."""

    name: str
    """Name of the hyperparameter."""
    value: int | float | str
    """The value."""
    points: int
    """Points with this value whose accuracy was measured."""
    mean_accuracy: float
    """Mean of their best top-1 accuracies."""
    best_accuracy: float
    """Largest of their best top-1 accuracies."""


class ReplicaPart(Part):
    """One replica."""

    replica: int
    """Number of the replica, from 0."""
    state: str
    """finished, lost, absent (no record knows it), or, in a run that has not ended, starting or
    working.
    """
    reason: str | None
    """The cause of a loss, or of never coming; else null."""
    accelerators: int
    """Devices that the replica computes on; 0 if it computes on CPUs."""
    ranks: int | None = None
    """Ranks of its trainings; null in reports of earlier versions, which called them accelerators.
    """
    trials: int
    """Trials that it was given."""
    operations: int
    """Operations of its trials that count."""
    busy_fraction: float | None
    """Time of training and evaluation as a fraction of the time from the first training step to the
    end of the run; null if the replica never trained.
    """
    phases_s: dict[str, float]
    """Seconds by phase (search, start, build, train, evaluate, checkpoint, idle, or down: no
    process of it lived) from the start of the run to its end.
    """
    node: str | None = None
    """Name of its node, the last one if it moved; null if it is not known."""
    working_ops: float | None = None
    """`operations` / seconds of training and evaluation; null without any."""
    input_s: float | None = None
    """Seconds of its training in which rank 0 waited for images; null if no epoch has it."""
    exchange_s: float | None = None
    """Seconds of its training in all-reduce, rank 0's waits for slower ranks included; null if no
    epoch has it: there is one rank, or its framework cannot tell.
    """
    servers_s: float | None = None
    """Seconds of its training in which the group of rank 0 waited for parameter servers; null
    without hybrid trainings.
    """


class AssumedPart(Part):
    """Assumptions that stand in for training in a run that trained nothing."""

    machine: str | None
    """Name in the machine file of a rehearsal in virtual time; null: the simulated trainer."""
    source: str | None = None
    """Source of the machine's figures, as its file says."""
    accelerator: str | None = None
    """Name of the imitated device."""
    operations_per_s: float | None = None
    """Operations per second of one device in training; null if they were not recorded."""
    share_of_peak: float | None = None
    """`operations_per_s` / peak of the device; null if that is unknown."""
    search: str | None = None
    """real, or modelled: architectures were drawn at random; null without a search."""
    made: str | None = None
    """Time at which it was rehearsed: ISO 8601, UTC; null if it was not recorded.

    All other times of a rehearsal are virtual.
    """


class Report(Part):
    """A run, finished or running, from its records. OPS: operations per second of wall time."""

    schema_version: int = 1
    """Version of this format."""
    rules_version: str = RULES_VERSION
    """Version of the rules that the run was checked against."""
    name: str
    """Name of the run (`run.name`)."""
    status: Status
    """PASSED (official), UNOFFICIAL (a setting leaves the rules), SIMULATED (nothing was trained),
    FAILED (invalid), or RUNNING (in progress: no verdict yet).
    """
    verdict: str
    """official, unofficial, simulated, invalid or running: the status in the ranking's words."""
    state: State | None = None
    """starting, running, silent (its primary gives no sign of life), interrupted (can be resumed),
    ended, or failed (over without reaching its end); null in reports of earlier versions.
    """
    simulated: bool = False
    """True if nothing was trained: a rehearsal, or the simulated trainer."""
    assumed: AssumedPart | None = None
    """Assumptions that stand in for training; null if the run trained."""
    violations: tuple[ViolationPart, ...]
    """The rules that are not met; of a run in progress, those that its settings break."""
    rules: tuple[RulePart, ...]
    """Every rule; of a run in progress, only those that its settings break."""
    ended: str
    """deadline, completed, interrupted, no_replicas, or unfinished (still running, or its primary
    was killed; the last record is then taken as the end).
    """
    started: str | None
    """Time of the replicas' release by the primary: ISO 8601, UTC; null if the run never started.
    """
    score_ops: float | None
    """Score in OPS: `operations_total` / `duration_s`; null if the status is FAILED."""
    regulated_score_ops: float | None
    """Regulated score in OPS: -ln(`error`) x `score_ops` (paper, equation 3); null if the status is
    FAILED, and of scientific workloads.
    """
    peak_ops: float | None = None
    """Best mean OPS in a window of ten progress intervals; null without a score or work."""
    sustained_ops: float | None = None
    """`operations_total` / seconds from the first training step to the last record of work; null
    without a score or work.
    """
    error: float
    """1 - best measured top-1 validation accuracy of an epoch completed by the end, at least 1 / (2
    x evaluated images); 1 without any epoch, and of scientific workloads.
    """
    duration_s: float
    """Seconds from start to end, stalls and failures included: the denominator of the score."""
    replicas: int
    """Replicas that the configuration asks for."""
    took_part: int | None = None
    """Replicas that were ready at least once; null if the run never started, and in reports of
    earlier versions.
    """
    accelerators: int
    """Devices of all nodes, by their own description; 0 if there are none. A device that several
    replicas share counts once.
    """
    ranks: int | None = None
    """Ranks of all replicas; null in reports of earlier versions, which called them accelerators.
    """
    images_trained: int
    """Trained images that count, of all trials."""
    images_evaluated: int
    """Evaluated images that count, of all trials."""
    operations_total: int
    """Operations that count, of all trials."""
    timeline: tuple[TimelinePart, ...]
    """The result over time."""
    trials: tuple[TrialPart, ...]
    """Every trial, by number; none of scientific workloads."""
    workloads: tuple[WorkloadPart, ...] = ()
    """Scientific workloads, in the order of the configuration; none in a run of AutoML."""
    replica_details: tuple[ReplicaPart, ...]
    """Every replica that the configuration asks for, by number."""
    hyperparameters: tuple[HyperparameterPart, ...]
    """Every value that the tuner tried of every hyperparameter."""
    failures: tuple[FailurePart, ...]
    """Failed and lost trials and lost replicas, in order of time."""
    counts: CountsPart | None = None
    """Numbers of trials and failures; null in reports of earlier versions."""
    phases_s: dict[str, float]
    """Seconds by phase, over all replicas."""
    energy: EnergyPart
    """Energy of the run."""
    statistics: StatisticsPart | None = None
    """Intervals of the result; null in reports of earlier versions."""
    physics: PhysicsPart | None = None
    """Plausibility of the run on its devices; null in reports of earlier versions."""
    roofline: RooflinePart | None = None
    """Ceilings of the machine by the micro suite; null in reports of earlier versions."""
    hybrid: HybridPart | None = None
    """Groups of ranks that exchanged with parameter servers; null if trainings were synchronous."""
    comparison: ComparisonPart | None = None
    """Replicas next to each other, and those that are slow; null in reports of earlier versions."""
    goodput: GoodputPart | None = None
    """Productive and lost hours; null in reports of earlier versions."""
    cost: CostPart | None = None
    """Node hours and their price; null if the run never started, and in reports of earlier
    versions.
    """
    health: HealthPart | None = None
    """Health of the nodes by their samples; null in reports of earlier versions."""
    places: tuple[PlacePart, ...] | None = None
    """Places of the ranks, the remarkable ones first; null in reports of earlier versions."""
    description: tuple[DescribedPart, ...] = ()
    """Description of the system, as far as it is known; none in reports of earlier versions."""
    primary: dict[str, str | int | float | None] | None = None
    """Hardware and software of the primary's node; null in earlier versions."""
    usage: tuple[UsagePart, ...]
    """Use of each sampled node."""
    system: dict[str, dict[str, str | int | float | None]]
    """Hardware and software of each replica's node, by replica, as in system.json."""
    configuration: dict[str, dict[str, Any]]
    """All settings in force, by section."""
    deviations: tuple[DeviationPart, ...]
    """The settings that are not the defaults."""
    versions: dict[str, str | None]
    """Versions of aiperf, its rules and Python, on the primary; the git revision, `git_dirty` (true
    if the source differs from it, else false), and the SHA-256 of the source.
    """
    damages: tuple[str, ...]
    """Records and architectures that are damaged or missing; any makes the run FAILED."""
    notices: tuple[str, ...] = ()
    """Facts for readers that are not damage, such as work of a superseded primary, or trainings
    that converged faster than the reference.
    """
    unfinished_lines: tuple[str, ...]
    """History files whose last line is incomplete, since their writer died; it never counts."""

    @property
    def is_science(self) -> bool:
        """True if the run trained scientific workloads in place of AutoML."""
        return bool(self.configuration.get("run", {}).get("suite") == "science")

    @property
    def made(self) -> str | None:
        """Time of the release; of a rehearsal, whose times are virtual, of the rehearsal itself."""
        virtual = self.assumed is not None and self.assumed.machine is not None
        return self.assumed.made if virtual and self.assumed is not None else self.started

    @property
    def present(self) -> int:
        """Replicas that took part."""
        return self.replicas if self.took_part is None else self.took_part

    @property
    def ops_per_accelerator(self) -> float | None:
        """Score divided by the accelerators; None without either."""
        return self.score_ops / self.accelerators if self.score_ops is not None and self.accelerators else None

    def _scored(self, score: float | None) -> str:
        if score is None:
            return {"RUNNING": "none", "UNVERIFIED": "unverified"}.get(self.status, "invalid")
        return f"{score:.6e}"

    @property
    def final_line(self) -> str:
        """The stable last line that scripts match."""
        if self.is_science:
            reached = sum(part.reached == part.instances for part in self.workloads)
            return (
                f"AIPerf-science: workloads={len(self.workloads)} reached={reached} seconds={self.duration_s:.3f} "
                f"status={self.status}"
            )
        return (
            f"AIPerf: score={self._scored(self.score_ops)} regulated={self._scored(self.regulated_score_ops)} "
            f"error={self.error:.6f} duration={self.duration_s:.3f} replicas={self.present} status={self.status}"
        )


def schema() -> str:
    """The JSON schema of report.json, as text."""
    return json.dumps(Report.model_json_schema(mode="serialization"), indent=2)


if __name__ == "__main__":
    print(schema())  # noqa: T201
