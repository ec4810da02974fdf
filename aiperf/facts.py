"""Facts of a training that messages, records and the score share, and the ranges of all numbers.

What no run can reach is refused where it is read: sums and products of numbers in these ranges are
finite, and loops over them end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, NamedTuple, TypeVar

from msgspec import Meta, Struct

LONGEST_MS = 1000 * 3_600_000
"""Longest run. Its timeline has 10,000 points."""

LAST_MS = 32_503_680_000_000
"""The year 3000."""

LAST_TRIAL = 10**9

Number = Annotated[int, Meta(ge=0, le=10**6)]
"""Number of a replica, a round, an epoch, or anything else of which there are few."""

Trial = Annotated[int, Meta(ge=0, le=LAST_TRIAL)]

Many = Annotated[int, Meta(ge=0, le=10**15)]
"""Exact as a float."""

Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]

Whole = Annotated[int, Meta(ge=1 - 10**18, le=10**18 - 1)]
"""Any other whole number: it fits into 64 bits."""

Duration = Annotated[int, Meta(ge=0, le=LONGEST_MS)]
"""Milliseconds."""

Seconds = Annotated[float, Meta(ge=0, le=LONGEST_MS / 1000)]

Moment = Annotated[int, Meta(ge=0, le=LAST_MS)]
"""Milliseconds since 1970."""

Offset = Annotated[int, Meta(ge=-LAST_MS, le=LAST_MS)]
"""Milliseconds between two clocks, or of a clock that may begin anywhere."""

Name = Annotated[str, Meta(max_length=200)]

Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
"""SHA-256 as hex digits."""


CPU_LIST = "^([0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*)?$"
"""Numbers as the kernel lists them, such as 0-3,8. Linux has at most 8,192 CPUs (NR_CPUS)."""

CpuList = Annotated[str, Meta(max_length=1 << 15, pattern=CPU_LIST)]


T_co = TypeVar("T_co", covariant=True)

UNCLASSIFIED = -1
"""Stands in a column of correct images for an epoch that does not have them."""


@dataclass(frozen=True, slots=True)
class Stamped(Generic[T_co]):
    """A fact with its time: UTC milliseconds of the clock that the context names."""

    time_ms: int
    body: T_co


class ProgressFacts(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Images of an unfinished epoch so far."""

    epoch: Number
    images_trained: Many
    images_evaluated: Many

    @property
    def position(self) -> tuple[int, int, int]:
        """Position of the training; positions of one trial can be compared."""
        return self.epoch, self.images_trained, self.images_evaluated


class EpochFacts(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A completed epoch, in whole images of all ranks; losses are means per image.

    Of the evaluated images, `correct` had the right top-1 class. A workload that measures its
    quality in another way leaves it out and gives `measured_quality`.
    """

    epoch: Number
    images_trained: Many
    images_evaluated: Many
    correct: Many | None = None
    loss: float
    validation_loss: float
    learning_rate: float
    measured_quality: float | None = None
    evidence: Name | None = None
    """SHA-256 of the epoch's rows in the trial's file (`aiperf.run_directory.step_evidence`)."""
    measures: dict[str, float] | None = None
    """Further measures of the validation examples, by name; the target is stated in them."""
    training_measures: dict[str, float] | None = None
    """Further measures of as many training examples, if they were evaluated: at a training's end.

    They are evaluated images, too.
    """
    sampled_images: Many | None = None
    """Number of these training examples among `images_evaluated`; None: none, or not recorded."""
    test_images: Many | None = None
    """Number of test examples, which are evaluated once, at a training's end; None: none were.

    They are not among `images_evaluated`, and no work that counts.
    """
    test_measures: dict[str, float] | None = None
    """Measures of these examples."""
    weights: Name | None = None
    """SHA-256 of the weights at the end of the epoch (`aiperf.run_directory.step_evidence`)."""
    state: Name | None = None
    """SHA-256 of the whole state that was kept after the epoch, from which it can be resumed."""
    resumed: Name | None = None
    """SHA-256 of the state that the training was resumed from, in the first epoch after that."""
    input_s: Seconds | None = None
    """Seconds for which rank 0 waited for training images; None: not measured.

    A device may still have had steps to compute meanwhile.
    """
    exchange_s: Seconds | None = None
    """Seconds of rank 0 in the all-reduces of the training steps, from its own gradients on until
    those of all ranks are summed: waits for slower ranks are a part. None: one rank has no other,
    and not every framework can tell it apart.
    """
    compiled: Name | None = None
    """The compiled parts of the steps, as in `BuiltFacts`, if they are no longer those last named:
    a graph is captured in the first epoch, and that may fail."""
    correct_trained: Many | None = None
    """Trained images whose top-1 class was right as they were trained; None: not counted.

    Each by the weights of its step, with dropout and the moments of its batch: no image is
    evaluated for it.
    """

    @property
    def accuracy(self) -> float | None:
        """Top-1 accuracy on the validation images; None if nothing was evaluated or classified."""
        if self.correct is None or self.images_evaluated <= 0:
            return None
        return self.correct / self.images_evaluated

    @property
    def training_accuracy(self) -> float | None:
        """Top-1 accuracy on the trained images, as they were trained; None: not counted."""
        if self.correct_trained is None or self.images_trained <= 0:
            return None
        return self.correct_trained / self.images_trained

    @property
    def images_validated(self) -> int:
        """Validation images among those that were evaluated."""
        return self.images_evaluated - self.images_sampled

    @property
    def images_sampled(self) -> int:
        """Training images among those that were evaluated.

        They are as many as the validation images, or all if there are fewer.
        """
        if self.training_measures is None:
            return 0
        if self.sampled_images is not None:
            return self.sampled_images
        # A record of an earlier version: the epoch trained all images, unless it was of groups.
        return min((self.images_evaluated + 1) // 2, self.images_trained)

    @property
    def quality(self) -> float | None:
        """The workload's measure, higher is better: top-1 accuracy if it classifies."""
        return self.accuracy if self.measured_quality is None else self.measured_quality


class Measured(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The best quality of a scientific workload so far: the first measure of its target."""

    workload: str
    measure: str
    value: float | None
    """The measured value; None: nothing is measured yet."""
    target: float
    higher: bool
    """True if a higher value is better."""

    def better_than(self, other: Measured) -> bool:
        """True if it has a value that is better than the other one's."""
        if self.value is None or other.value is None:
            return self.value is not None
        return self.value > other.value if self.higher else self.value < other.value


class RankPlace(NamedTuple):
    """The place where a rank ran, whatever it was asked to use."""

    node: Name
    """Host name."""
    cpus: CpuList
    """CPUs on which it may run once its first steps are compiled; a library may have bound it."""
    domains: CpuList
    """Memory domains (NUMA nodes) of these CPUs; empty: the kernel does not say."""


class BuiltFacts(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The network that a trainer has built, as found after building and not as requested."""

    architecture: Name
    """Canonical hash of the network that was built."""
    compute: dict[str, Many]
    """Number of convolutions and dense layers by the type that they compute in ("bfloat16")."""
    devices: tuple[str, ...]
    """Device of each rank, by the driver's name; "cpu" without an accelerator."""
    framework: Name
    """Name and version, such as "tensorflow 2.20.0"; "simulated" for the simulated trainer."""
    source_hash: Name
    """Hash of the program that the ranks run (`aiperf.source_code`)."""
    environment: dict[str, str]
    """Variables that change what the framework does: TF_*, XLA_*, NVIDIA_*, and similar ones."""
    fingerprint: Name | None = None
    """Fingerprint of the data set that a sample of images was compared with; None: unknown."""
    compiled: Name | None = None
    """The compiled parts of the steps, such as "XLA", "regions, graph" or "no", and why something
    could not be compiled; None: not recorded."""
    places: tuple[RankPlace, ...] | None = None
    """Node, CPUs and memory domains of each rank, as it ran; None: not recorded."""


NOT_COMPILED = re.compile(r"no \w+ \(")
"""A part that could not be compiled, in front of its reason, in `BuiltFacts.compiled`."""


class HybridTraining(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Groups of ranks that train synchronously, and exchange with parameter servers at their pace.

    Momentum, and the rate of the request, are those that the servers use
    (`aiperf.rules.asynchrony`).
    """

    groups: int
    servers: int
    optimiser: Literal["sgd", "adam"]
    momentum: float
    """Momentum of SGD; for Adam, beta 1."""
    warm_up: int = 0
    """Updates over which the rate rises linearly from 0."""
    staleness_aware: bool = False
    """Divide the rate by 1 + the staleness of the update."""


class ExchangeFacts(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Exchange of one group with the parameter servers in an epoch."""

    epoch: Number
    group: Number
    updates: Many
    """Number of its updates that the servers applied."""
    images: Many
    """Images of these updates."""
    staleness: tuple[Many, ...]
    """Entry s: number of these updates with staleness s, the largest over the servers. They sum to
    `updates`.
    """
    computing_s: float
    group_s: float
    """Seconds in all-reduce and broadcast inside the group."""
    waiting_s: float
    """Seconds that the group waited for the servers."""
    bytes_exchanged: Bytes
    """Bytes exchanged with the servers, in both directions."""
    lost: Name | None = None
    """The reason why the group ended before the training; None if it did not.

    It has then not finished the epoch: updates, images and staleness are those that the first
    server has applied, and nothing else was recorded.
    """
    returned: bool | None = None
    """True in the first epoch of a group that was lost before and has come back."""


class ServerFacts(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Work of one parameter server during an epoch of group 0."""

    epoch: Number
    server: Number
    updates: Many
    """Updates of all groups that the server applied in this time."""
    busy_share: float
    """Share of this time in which it did not wait for messages, 0 to 1."""
    restarts: Many | None = None
    """Number of times in this period that it was killed, and a new process resumed from its memory;
    None: it was not."""
