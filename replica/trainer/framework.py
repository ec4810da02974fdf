"""The contract of a framework that trains Keras models, and of the steps that it compiles.

Batches cross this seam as NumPy arrays or as tensors of the framework. Sources that make the
framework's tensors hand them through untouched, so that nothing is copied.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aiperf.config.frameworks import Pipeline
from aiperf.wire.messages import ArchitectureRequest, WorkloadRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.tasks.contract import Task
from workloads.contract import Workload

BlankBatch = Callable[[int], tuple[Any, Any]]
"""Function that makes a batch of this many blank images with valid labels."""


class CompiledSteps(Protocol):
    """The training and the evaluation step of one rank, with their model and optimiser.

    Batches have any size, also none at all: images (N, H, W, C), and labels of N rows, float32.
    Images are float32. If the framework's pipeline is "numpy", they may be pixels, uint8, which the
    steps normalise on the device. All batches of a training are of one type.
    Every rank calls the same steps in the same order. A rank that has run out of images passes
    empty batches, so that all ranks take part in every all-reduce. Weights that are set on the
    Keras model before `share` are trained from.
    """

    def prepare(self, blank: BlankBatch, sizes: Sequence[int]) -> None:
        """Trace and compile ahead, for training batches of these sizes; the state stays as it is.

        Every rank calls it.
        """

    def compiled(self) -> str:
        """Say what compiles the steps, or a part of them, and after `prepare` what it could not."""

    def train(self, images: Any, labels: Any) -> Any:
        """Do one update; give results over all ranks, on the device, (3,) float32.

        They are the sum of the losses, the number of images, and the Euclidean norm of the gradient
        that was applied, as it is without the scale of the loss.
        """

    def evaluate(self, images: Any, labels: Any) -> Any:
        """Evaluate; give sums over all ranks, on the device: loss, metrics, images, (2 + M,)."""

    def read(self, results: Sequence[Any]) -> NDArray[np.float32]:
        """Wait for the steps that gave these results; give a row for each of them."""

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the training steps that follow; it waits for nothing."""

    def weights(self) -> list[NDArray[Any]]:
        """Copies of the model's weights in Keras's order (`Model.get_weights`)."""

    def state(self) -> list[NDArray[Any]]:
        """Copies of all variables of model and optimiser, without the learning rate."""

    def restore(self, state: Sequence[NDArray[Any]]) -> None:
        """Set all variables. Raises ValueError if the shapes are those of another model."""

    def share(self) -> None:
        """Give every rank the weights and the optimiser's state of rank 0."""

    def take_correct(self) -> int | None:
        """Take the number of training images whose top-1 class was right, since the last call.

        It is over all ranks, which call it together; steps of `prepare` do not count. None if the
        workload does not classify.
        """

    def average_statistics(self) -> None:
        """Give every rank the mean of the weights without gradients (moving statistics)."""


class TaskSteps(CompiledSteps, Protocol):
    """The steps of a scientific task: batches are pairs of inputs and targets (`Task`).

    An evaluation step gives 0 and the number of examples over all ranks; this rank keeps the rows
    of its own.
    """

    def take_rows(self) -> NDArray[np.float32]:
        """Take the rows of this rank's evaluated examples since the last call: (M, columns)."""


class Framework(Protocol):
    """A framework. Importing its module, before Keras, chooses Keras's backend."""

    @property
    def pipeline(self) -> Pipeline:
        """The input pipeline whose batches it trains on."""

    def open_collective(self, ranks: int, limit_s: float | None = None) -> Collective:
        """Join the ranks that were started together.

        No exchange of tensors takes longer than `limit_s`, if its library has such limits.
        Raises TrialFailedError ("ranks") if their number is not `ranks`.
        """

    def configure(self, cpu_threads: int, local_rank: int, part: float = 1.0) -> None:
        """Set threads and take this rank's accelerator, if any, before the first tensor.

        `part` is the part of the accelerator's memory that this rank may take.
        """

    def name(self) -> str:
        """Name and version, with Keras's: "tensorflow 2.20.0, keras 3.11.3"."""

    def accelerators(self) -> int:
        """Number of accelerators of this node that it can compute on."""

    def device(self, local_rank: int) -> str:
        """Name of this rank's accelerator, by the driver; "cpu" if it computes on the CPU."""

    def compile(
        self, model: Any, optimiser: Any, workload: Workload, collective: Collective, request: ArchitectureRequest
    ) -> CompiledSteps:
        """Make the steps for a Keras model and a built Keras optimiser."""

    def compile_task(self, task: Task, optimiser: Any, collective: Collective, request: WorkloadRequest) -> TaskSteps:
        """Make the steps of a scientific task. Raises TrialFailedError ("build") if it has none."""

    def kind_of(self, error: Exception) -> str | None:
        """Find the kind of an exception's failure ("out_of_memory", "data"); None if unknown."""
