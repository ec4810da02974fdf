"""The part of the report about scientific workloads."""

from pydantic import Field

from analysis.report.estimates import Part


class QualityPart(Part):
    """One completed epoch of a model."""

    t_s: float
    """Seconds after the first job of the model was issued."""
    trial: int
    """The trial that trained it."""
    epoch: int
    """Number of the epoch."""
    images: int
    """Images trained in all completed epochs of the model so far, repeated ones included."""
    operations: int
    """Operations of all completed epochs of the model so far, evaluation included."""
    quality: float | None
    """The first measure of the target on the validation examples; null if it was not measured."""
    reached: bool
    """True if every measure of the target is at or beyond its value."""
    measures: dict[str, float]
    """Measures of the validation examples by name."""
    training_measures: dict[str, float]
    """Measures of training examples by name, in the last epoch of a training; else empty."""
    test_measures: dict[str, float] = Field(default_factory=dict)
    """Measures of the test split by name, in the last epoch of a training; else empty."""
    training_accuracy: float | None = None
    """Share of the epoch's training images whose top-1 class was right as they were trained; null
    if none were counted.
    """


class ModelTrialPart(Part):
    """One trial of a model: a model has more than one if it was interrupted or failed."""

    id: int
    """Number of the trial."""
    replica: int
    """The replica that trained it."""
    state: str
    """completed, early_stop, stopped (by the run's end), failed, lost, or running."""
    failure_reason: str | None
    """The cause, if the state is failed or lost."""
    resumes: int | None
    """The trial that it resumes."""
    epochs: int
    """Completed epochs that count."""
    images_trained: int
    """Trained images that count."""
    images_evaluated: int
    """Evaluated images that count."""
    operations: int
    """Operations that count."""
    lost_operations: int
    """Operations of an unfinished epoch that do not count, because the trial failed or was lost."""
    started_s: float | None
    """Seconds from the start of the run to the first record of the training."""
    ended_s: float | None
    """Seconds from the start of the run to the trial's end, failure or loss within the run."""


class ToQualityPart(Part):
    """Cost of reaching the target: null if it was not reached. Nothing is extrapolated."""

    time_to_quality_s: float | None
    """Seconds from the first job to the first epoch at or beyond the target."""
    epochs_to_quality: float | None
    """Number of that epoch."""
    images_to_quality: float | None
    """Images trained in completed epochs until then, those of earlier trials included."""
    operations_to_quality: float | None
    """Operations of completed epochs until then."""
    cost_to_quality: float | None
    """Price of nodes and energy until then, in `price.currency`; null if a price is not stated, or
    energy has a price and was not measured.
    """
    energy_to_quality_j: float | None
    """Joules of the replica's nodes until then; null if a node reports none."""
    mean_power_w: float | None
    """`energy_to_quality_j` / `time_to_quality_s`."""


class RatesPart(Part):
    """Rates of the training, whether the target was reached or not."""

    ops: float | None
    """Operations that count / seconds from the first job to the end."""
    sustained_ops: float | None
    """Operations that count / seconds from the first training step to the last record of work."""
    peak_ops: float | None
    """Best mean operations per second over ten consecutive progress intervals."""
    valid_ops: float | None
    """`ops` x (`quality` / `target`)^5, for errors (`target` / `quality`)^5, at most `ops`; of
    several measures, the one that is furthest from its target.
    """
    images_per_s: float | None
    """Images trained that count / seconds from the first training step to the last record."""
    share_of_ceiling: float | None
    """Roofline time of its images / time of training and evaluation; null if not known."""


class InstancePart(ToQualityPart, RatesPart):
    """One model of a workload."""

    instance: int
    """Number of the model, from 0."""
    seed: int | None
    """Seed of the model."""
    reached: bool
    """True if an epoch reached the target before the end of the run."""
    quality: float | None
    """The first measure of the target: at the epoch that reached it, else of the best epoch."""
    training_quality: float | None
    """The measure on training examples at the end of the training; null if it did not end."""
    test_quality: float | None = None
    """The measure on the test split at the end of the training; null without a split or an end."""
    started_s: float | None
    """Seconds from the start of the run to the first job."""
    duration_s: float
    """Seconds from the first job to the end of the last trial, or of the run."""
    images_trained: int
    """Trained images that count."""
    images_evaluated: int
    """Evaluated images that count."""
    operations: int
    """Operations that count."""
    curve: tuple[QualityPart, ...]
    """Every completed epoch, in order of time."""
    trials: tuple[ModelTrialPart, ...]
    """Trials of the model, by number."""


class WorkloadPart(ToQualityPart, RatesPart):
    """One scientific workload: medians over its models.

    Those of what the target took are over the models that reached it. `peak_ops` is the largest.
    """

    workload: str
    """Name of the workload."""
    framework: str
    """Framework of the workload; results of different ones are different benchmarks."""
    size: str
    """official or rehearsal."""
    instances: int
    """Models that the configuration asks for."""
    reached: int
    """Models that reached the target."""
    measure: str | None
    """The first measure of the target; null, as more fields below, if no training began."""
    higher: bool | None
    """True if a higher measure is better."""
    target: float | None
    """Value of that measure that a model must reach."""
    targets: dict[str, float]
    """All measures that one epoch must reach together."""
    quality: float | None
    """Median quality of the models."""
    training_quality: float | None
    """Median quality on training examples of the models."""
    test_quality: float | None = None
    """Median quality on the test split of the models; null without such a split."""
    test_images: int | None = None
    """Number of examples of the test split, which are evaluated once a training and do not count as
    work.
    """
    time_to_quality_least_s: float | None
    """The shortest time of a model."""
    time_to_quality_most_s: float | None
    """The longest time of a model."""
    time_to_quality_low_s: float | None = None
    """Lower end of the 95 % interval of the median: an order statistic of the models' times
    (Conover 1999, section 3.2); null of fewer than 6 models, or if one did not reach the target.
    """
    time_to_quality_high_s: float | None = None
    """Upper end of it."""
    valid_ops_low: float | None = None
    """Lower end of the 95 % interval of the median of `valid_ops`; null of fewer than 6 models."""
    valid_ops_high: float | None = None
    """Upper end of it."""
    valid_operations_per_joule: float | None = None
    """Median of the models' `valid_ops` / `mean_power_w`, which is valid OPS per watt; null without
    energy.
    """
    dataset: str | None
    """Name of the data set."""
    generated: bool | None
    """True if the data set was generated and not observed."""
    precision: str | None
    """Arithmetic of the layers."""
    hyperparameters: dict[str, int | float | str]
    """Hyperparameters of the first model."""
    networks: dict[str, str]
    """Hashes of the networks, by name."""
    training_operations: int | None
    """Operations to train one image."""
    evaluation_operations: int | None
    """Operations to evaluate one image."""
    models: tuple[InstancePart, ...]
    """Every model that was given to a replica, by number."""
