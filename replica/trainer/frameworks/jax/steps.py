"""The training step and the evaluation step of one rank on JAX, compiled by XLA.

Results are over all ranks. Alone, a rank has a program for each size of a batch. Several ranks run
one program together, from their images to the update, for which batches are filled up with images
that do not count; so are those of evaluations.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.errors import JaxRuntimeError
from numpy.typing import NDArray

from aiperf.wire.messages import ArchitectureRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.data.portable.recipe import scale_and_shift
from replica.trainer.failures import others_may_die
from replica.trainer.framework import BlankBatch
from replica.trainer.frameworks.jax.collective import JaxCollective
from replica.trainer.frameworks.jax.raw_state import RawState, Step, Values
from replica.trainer.model import objectives
from replica.trainer.model.builder import normalise_by
from replica.trainer.model.correct import CorrectImages
from replica.trainer.model.state import KerasState
from replica.trainer.updates import update_for
from workloads.contract import Workload

# Batch normalisation in one pass over the images, on the variables of Keras's layers.
#
# Keras takes the mean first and then the squared differences from it: two passes of which the
# second waits for the first, and as many again for their gradients. Here one pass finds both sums.


def fuse_normalisation(model: Any) -> None:
    """Let the model's layers take the moments of a batch in one pass when they train."""
    normalise_by(model, _in_one_pass)


_MASK: ContextVar[Any] = ContextVar("mask", default=None)
"""Mask of the batch of the step that is traced, (N,) float32: 1 for images that count, 0 for those
that fill the batch up. Keras calls layers without it, hence a variable of the context."""


@contextmanager
def counting(mask: Any) -> Iterator[None]:
    """Run a block in which moments are those of the images that count."""
    token = _MASK.set(mask)
    try:
        yield
    finally:
        _MASK.reset(token)


def _means(values: Any, mask: Any) -> Any:
    """The mean of each channel."""
    axes = tuple(range(values.ndim - 1))
    if mask is None:
        return values.mean(axes)
    weights = mask.reshape(-1, *[1] * (values.ndim - 1))
    # A rank without images has no moments, and must not divide by nothing.
    return (values * weights).sum(axes) / (jnp.maximum(mask.sum(), 1.0) * prod(values.shape[1:-1]))


def _in_one_pass(layer: Any, inputs: Any) -> tuple[Any, Any, Any]:
    """Normalise by moments in float32; the variance is the mean square less the mean's square.

    Gives outputs, mean and variance.

    The difference loses digits when a channel's mean is far larger than its deviation: at 100
    times, the variance is 2e-3 off.
    """
    wide = inputs.astype(jnp.float32)
    mask = _MASK.get()
    mean = _means(wide, mask)
    # Rounding makes it negative when all values of a channel are alike.
    variance = jnp.maximum(_means(wide * wide, mask) - mean * mean, 0)
    factor = layer.gamma.value * jax.lax.rsqrt(variance + layer.epsilon)
    return wide * factor + (layer.beta.value - mean * factor), mean, variance


BY_RANK = (True, False, True, False, False, False), (True, True, False, True)
"""Arguments and results of a step of several ranks: True for those that are alike on all. The
model's other variables (moving statistics, seeds) and the batch are each rank's own."""

STEPS_AHEAD = 2
"""Steps that the host queues ahead of the one that the device computes."""


class StatelessOptimiser:
    """The Keras optimiser as updates call it (`updates.contract`), within a traced function."""

    def __init__(self, optimiser: Any) -> None:
        self._optimiser = optimiser
        self._before: tuple[Values, Values] = [], []
        self.after: tuple[Values, Values] = [], []
        """Trained values and the optimiser's own, after `apply`."""

    def begin(self, trained: Values, own: Values) -> None:
        """Set the values that the next `apply` starts from."""
        self._before = trained, own

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Compute the values after the update."""
        trained, own = self._before
        self.after = self._optimiser.stateless_apply(own, list(gradients), trained)


class JaxSteps(KerasState):
    """Steps as pure functions of the variables' values (`CompiledSteps`)."""

    def __init__(
        self, model: Any, optimiser: Any, workload: Workload, collective: Collective, request: ArchitectureRequest
    ) -> None:
        correct = CorrectImages()
        super().__init__(model, optimiser, collective, correct)
        fuse_normalisation(model)
        self._batch_size = request.batch_size
        body = objectives.without_softmax(model)
        self._body = model if body is None else body
        find = objectives.find if body is None else objectives.find_of_logits
        self._loss = find(workload.training_loss(request))
        self._scores = [find(each) for each in (workload.validation_loss(request), *workload.metrics)]
        self._trained = list(model.trainable_variables)
        own = {id(variable) for variable in self._trained}
        self._others = [variable for variable in model.variables if id(variable) not in own]
        self._others.append(correct.variable)
        self._count_correct = correct.add
        self._stateless = StatelessOptimiser(optimiser)
        self._update = update_for(self._stateless, collective, request, optimiser)
        self._together = collective if isinstance(collective, JaxCollective) else None
        variables = (self._trained, self._others, optimiser.variables)
        self._raw = RawState(variables, optimiser.learning_rate, self._together)
        if self._together is None:
            # Donated arguments: the weights after a step take the memory of those before it.
            self._train = jax.jit(self._whole_step, donate_argnums=(0, 1, 2))
        else:
            self._train = self._together.together(self._step_of_ranks, *BY_RANK, donated=(0, 1, 2))
        # Nothing is donated here: every batch of an evaluation takes the same values.
        self._score = jax.jit(self._own_scores)
        self._compiled: dict[tuple[str, int], Any] = {}
        self._under_way: deque[Any] = deque()
        """Results of the steps that the device may not have finished, the oldest first."""

    def compiled(self) -> str:
        """XLA compiles all of it."""
        return "XLA"

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the training steps that follow."""
        self._raw.set_rate(rate)

    def _settle(self) -> None:
        """Give the variables the values after the last step."""
        self._raw.write()

    def prepare(self, blank: BlankBatch, sizes: Sequence[int]) -> None:
        """Compile for training batches of these sizes and for the evaluation; nothing runs."""
        values = [described(each) for each in (self._trained, self._others, self._optimiser.variables)]
        whole = (*blank(self._batch_size), np.ones(self._batch_size, np.float32))
        if self._together is not None:
            # The model's other variables are each rank's own row of an array of all ranks.
            values[1] = [jax.ShapeDtypeStruct((1, *each.shape), each.dtype) for each in values[1]]
        self._prepare_training(values, whole, blank, sizes)
        self._compiled["score", self._batch_size] = self._score.lower(*values[:2], *whole).compile()

    def _prepare_training(self, values: list[Values], whole: Any, blank: BlankBatch, sizes: Sequence[int]) -> None:
        """Compile the step for values like these; several ranks take a whole batch and its mask."""
        if self._together is None:
            for size in {size for size in sizes if size}:
                self._compiled["train", size] = self._train.lower(*values, *blank(size)).compile()
            return
        given = zip([*values, *whole], BY_RANK[0], strict=True)
        all_ranks = [jax.tree.map(partial(self._of_ranks, alike), each) for each, alike in given]
        self._compiled["train", self._batch_size] = self._train.lower(*all_ranks).compile()

    def _of_ranks(self, alike: bool, part: Any) -> Any:
        assert self._together is not None
        return self._together.described(part.shape, part.dtype, alike)

    def program_bytes(self, size: int) -> int | None:
        """Bytes of the training program's intermediate results, for a batch of this size.

        None if it is not prepared.
        """
        program = self._compiled.get(("train", size))
        return None if program is None else int(program.memory_analysis().temp_size_in_bytes)

    def _scale(self, own: Values) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(self._optimiser.variables, own, strict=True))):
            # The scope makes Keras read the scale from the traced values: read from the variable,
            # it would be a constant of the compiled program.
            return jnp.asarray(self._optimiser.scale_loss(1.0), jnp.float32)

    def _own_gradients(
        self, trained: Values, others: Values, scale: Any, images: Any, labels: Any, mask: Any = None
    ) -> tuple[Any, Values, Values]:
        """Compute sums, gradients of the mean loss times the scale, and statistics of this rank.

        `mask` is (N,) float32, 0 for images that do not count; None if all do.
        """

        def loss_of(trained: Values) -> Any:
            known = [*zip(self._trained, trained, strict=True), *zip(self._others, others, strict=True)]
            with keras.StatelessScope(state_mapping=known) as scope, counting(mask):
                outputs = self._body(_normalised(images), training=True)
                # Within the scope: the counter is among `self._others`, and gets its value from
                # there.
                self._count_correct(labels, outputs, mask)
            losses = self._loss(labels, outputs)
            after = [scope.get_current_value(variable) for variable in self._others]
            if mask is None:
                return losses.mean() * scale, (jnp.stack([losses.sum(), jnp.float32(images.shape[0])]), after)
            total, count = (losses * mask).sum(), mask.sum()
            # A rank that has run out of images has gradients of zero, and its statistics stay.
            after = [jnp.where(count > 0, new, old) for new, old in zip(after, others, strict=True)]
            return total / jnp.maximum(count, 1.0) * scale, (jnp.stack([total, count]), after)

        gradients, (sums, after) = jax.grad(loss_of, has_aux=True)(trained)
        return sums, gradients, after

    def _applied(self, trained: Values, own: Values, gradients: Values, sums: Any) -> tuple[Any, Values, Values]:
        """Update; give the step's results, and the values afterwards."""
        scale = self._scale(own)
        self._stateless.begin(trained, own)
        totals, applied = self._update.apply(gradients, self._trained, sums)
        norm = jnp.sqrt(sum(jnp.vdot(each, each) for each in applied)) / scale
        return jnp.concatenate([totals, norm[None]]), *self._stateless.after

    def _whole_step(
        self, trained: Values, others: Values, own: Values, images: Any, labels: Any
    ) -> tuple[Any, Values, Values, Values]:
        sums, gradients, others = self._own_gradients(trained, others, self._scale(own), images, labels)
        results, trained, own = self._applied(trained, own, gradients, sums)
        return results, trained, others, own

    def _step_of_ranks(
        self, trained: Values, rows: Values, own: Values, images: Any, labels: Any, mask: Any
    ) -> tuple[Any, Values, Values, Values]:
        """Do this rank's part of a step that all do together."""
        others = [row[0] for row in rows]
        sums, gradients, others = self._own_gradients(trained, others, self._scale(own), images, labels, mask)
        results, trained, own = self._applied(trained, own, gradients, sums)
        return results, trained, [each[None] for each in others], own

    def _train_together(self, ranks: JaxCollective, images: Any, labels: Any) -> tuple[Any, Step]:
        # All ranks run one program, so all batches have one size, also the last and the empty ones.
        count, size = len(images), max(len(images), self._batch_size)
        given = [ranks.parts(each) for each in (filled(images, size), filled(labels, size), mask_of(count, size))]
        step = self._compiled.get(("train", size), self._train)
        with others_may_die(JaxRuntimeError):
            results, *after = step(*self._raw.begin_step(), *given)
        return results.addressable_data(0), tuple(after)

    def _own_scores(self, trained: Values, others: Values, images: Any, labels: Any, mask: Any) -> Any:
        if self._together is not None:
            others = [row[0] for row in others]
        known = [*zip(self._trained, trained, strict=True), *zip(self._others, others, strict=True)]
        with keras.StatelessScope(state_mapping=known):
            outputs = self._body(_normalised(images), training=False)
        return jnp.stack([*(jnp.sum(score(labels, outputs) * mask) for score in self._scores), mask.sum()])

    def train(self, images: Any, labels: Any) -> Any:
        """Do one update; give the sum of the losses, the images, and the norm of the gradient."""
        return self._queued(self._step(_array(images), _array(labels)))

    def _queued(self, results: Any) -> Any:
        """Wait until the device is not too far behind; give the results back."""
        self._under_way.append(results)
        if len(self._under_way) > STEPS_AHEAD:
            # Left alone, JAX queues about 32 steps, each with the memory of its batch.
            jax.block_until_ready(self._under_way.popleft())
        return results

    def _step(self, images: Any, labels: Any) -> Any:
        if self._together is None:
            # A size that was not prepared is compiled by `jit` when its first batch comes.
            step = self._compiled.get(("train", len(images)), self._train)
            results, *after = step(*self._raw.begin_step(), images, labels)
            self._raw.end_step(tuple(after))
        else:
            results, values = self._train_together(self._together, images, labels)
            self._raw.end_step(values)
        return results

    def evaluate(self, images: Any, labels: Any) -> Any:
        """Evaluate; give sums over all ranks: loss, metrics, images."""
        count, size = len(images), max(len(images), self._batch_size)
        given = filled(_array(images), size), filled(_array(labels), size), mask_of(count, size)
        own = self._compiled.get(("score", size), self._score)(*self._raw.local(), *given)
        return self._queued(self._collective.sum_tensors([own], "scores")[0])

    def read(self, results: Sequence[Any]) -> NDArray[np.float32]:
        """Wait for the steps that gave these results; give a row for each of them."""
        rows = np.stack([np.asarray(each) for each in results])
        self._raw.write()
        return rows


def described(variables: Sequence[Any]) -> list[Any]:
    """Describe the values of variables to the compiler."""
    return [jax.ShapeDtypeStruct(each.value.shape, each.value.dtype) for each in variables]


def _array(values: Any) -> Any:
    """Arrays of JAX and pixels as they are, all others as float32 of NumPy."""
    if isinstance(values, jax.Array) or values.dtype == np.uint8:
        return values
    return np.asarray(values, np.float32)


def _normalised(images: Any) -> Any:
    """Images as the network takes them: pixels are normalised within the program of the step."""
    if images.dtype != jnp.uint8:
        return images
    count, height, width, channels = images.shape
    scale, shift = scale_and_shift(width)
    rows = images.reshape(count, height, width * channels).astype(jnp.float32) * scale - shift
    return rows.reshape(images.shape)


def mask_of(count: int, size: int) -> NDArray[np.float32]:
    """The mask of a batch that was filled up to a size: 1 for each of its own rows."""
    return (np.arange(size) < count).astype(np.float32)


def filled(array: Any, rows: int) -> Any:
    """Fill a batch up with rows of zeros."""
    missing = rows - len(array)
    return np.pad(np.asarray(array), [(0, missing)] + [(0, 0)] * (array.ndim - 1)) if missing else array
