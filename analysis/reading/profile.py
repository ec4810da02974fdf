"""The profile of a training step, and a sweep over its input, as `aiperf profile` writes them."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from aiperf.untrusted.reading import read_outside


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ProfiledOperation(_Part):
    """One kind of operation in one phase, per step."""

    operation: str
    phase: str
    library: str
    """Library that computes it, as far as its name says."""
    seconds: float
    """Self time per step, summed over all threads."""
    calls: float
    """Executions per step."""


class ProfiledLayers(_Part):
    """All layers of one kind, per step."""

    kind: str
    layers: int
    seconds: float
    """Self time of their operations, both passes, summed over all threads."""
    operations: int
    """Counted for all images of a step; 0 for what the rules do not count."""

    @property
    def rate(self) -> float | None:
        """Counted operations per second of self time; None without either."""
        return self.operations / self.seconds if self.operations and self.seconds else None


class KindWork(_Part):
    """Operations of all layers of one kind in a step: both passes, all images of a rank."""

    kind: str
    layers: int
    counted: int
    """Operations by the rules; 0 for those that they do not count."""
    executed: float | None
    """Operations by the framework; None if it does not report them."""
    reason: str
    """Reason for missing operations."""

    @property
    def ratio(self) -> float | None:
        """Executed over counted operations; None without either."""
        return self.executed / self.counted if self.executed is not None and self.counted else None


class TimelineBlock(_Part):
    """Operations of one phase that follow each other on one lane."""

    lane: str
    phase: str
    operation: str
    """The longest of them."""
    start_s: float
    end_s: float


class Timeline(_Part):
    """One step: the median one by its length."""

    seconds: float
    blocks: tuple[TimelineBlock, ...]


class Allocator(_Part):
    """The allocator with the most memory in use."""

    name: str
    peak_bytes: int
    """Bytes at the peak of the recorded steps: the sum of all purposes."""
    lifetime_peak_bytes: int
    fragmentation: float | None
    """Share of the free memory outside its largest piece, at the peak."""
    explained: float
    """Share of the peak that has a purpose."""


class HardwareCounters(_Part):
    """Counts of the processor per step, and reasons for those that are missing."""

    per_step: dict[str, float]
    missing: dict[str, str]
    executed_operations: float | None
    """Operations in single precision, as the processor counts; None if it does not."""
    counted_operations: int
    """Operations by the rules, for all images of a step."""


class StepSettings(_Part):
    """The settings that the step was trained with.

    Without an architecture file and a workload it is ResNet-50's.
    """

    architecture: str | None
    workload: str | None = None
    size: int | None = None
    dataset: str
    data_dir: str | None
    synthetic_input: bool
    batch_size: int
    """Images of a step, on each rank."""
    precision: str
    """Arithmetic of the layers."""
    xla: bool
    steps: int
    """Steps asked for."""
    framework: str = "tensorflow"
    ranks: int = 1

    @property
    def data(self) -> str:
        """Data that it trained on."""
        return self.dataset if self.workload is None and self.size is None else "random data"


class _Recorded(_Part):
    """The place and time of a recorded step; empty in files of earlier versions."""

    settings: StepSettings
    software: str = ""
    """Name and version of the framework, with Keras's."""
    device: str = ""
    """Model of the accelerator, or of the processor without one."""
    recorded: str | None = None
    """ISO 8601, UTC."""

    @property
    def network(self) -> str:
        """The network in words; one of a run by its hash, as the run's tables have it."""
        if self.settings.workload is not None:
            return self.settings.workload
        file = self.settings.architecture
        return "ResNet-50" if file is None else f"architecture {Path(file).parent.name[:16]}"


class Profile(_Recorded):
    """Seconds and bytes of a training step, averaged over `steps` recorded steps."""

    architecture: str
    """Canonical hash."""
    rule_set: str
    image_operations: int
    """Operations of training one image."""
    steps: int
    step_s: float
    """Median wall time of a step, fetching the batch included."""
    operations: tuple[ProfiledOperation, ...]
    """The most expensive first."""
    layers: tuple[ProfiledLayers, ...]
    """The most expensive first."""
    work: tuple[KindWork, ...] = ()
    """Counted and executed operations, the most counted first."""
    work_source: str = ""
    """Source of the rules that the executed operations follow."""
    phases: dict[str, float]
    """Wall seconds of the mean step; they sum to it."""
    outside: dict[str, float]
    """Seconds of what a training does outside its steps: one batch evaluated, one checkpoint."""
    timeline: Timeline
    memory_bytes: dict[str, int]
    """Bytes by purpose at the allocator's peak."""
    allocator: Allocator | None
    """Allocations; None if the framework recorded none."""
    process_peak_bytes: int
    """Peak memory of the whole process, its programs included."""
    limit_bytes: int
    """Memory that was there for it."""
    counters: HardwareCounters

    @property
    def images_per_second(self) -> float:
        """Images trained per second of wall time, by one rank."""
        return self.settings.batch_size / self.step_s


class SweepPoint(_Part):
    """A step at one value of the axis."""

    value: int
    elements: int
    fits: bool
    reason: str
    step_s: float | None
    weights_bytes: int
    """Weights and optimiser state."""
    intermediate_bytes: int
    """Input, activations and gradients."""
    temporary_bytes: int
    """Temporaries, values of the update, and rounding."""
    unexplained_bytes: int
    process_peak_bytes: int | None

    @property
    def peak_bytes(self) -> int:
        """The sum."""
        return self.weights_bytes + self.intermediate_bytes + self.temporary_bytes + self.unexplained_bytes


class MemorySweep(_Recorded):
    """The memory of a step against the size of its input."""

    axis: str
    limit_bytes: int
    points: tuple[SweepPoint, ...]
    largest_measured: int | None
    """The largest value that was trained."""
    largest_predicted: int | None
    """The largest batch on a line through the measured points; None for other axes."""


def read_profile(file: Path) -> Profile:
    """Read a profile.json. Raises RunDirectoryError if it is not one."""
    return read_outside(file, Profile.model_validate_json, what="a profile")


def read_sweep(file: Path) -> MemorySweep:
    """Read a sweep.json. Raises RunDirectoryError if it is not one."""
    return read_outside(file, MemorySweep.model_validate_json, what="a sweep")
