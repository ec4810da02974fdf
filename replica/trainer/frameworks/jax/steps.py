"""The training step and the evaluation step of one rank on JAX, compiled by XLA.

Results are over all ranks. Programs are compiled for each size of a batch; evaluations are filled
up to whole batches with images that do not count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import keras
import numpy as np
from numpy.typing import NDArray

from aiperf.wire.messages import TrainRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.framework import BlankBatch
from replica.trainer.frameworks.jax.collective import JaxCollective
from replica.trainer.frameworks.jax.normalisation import fuse_normalisation
from replica.trainer.model import objectives
from replica.trainer.model.state import KerasState
from replica.trainer.updates import UPDATES, choose_update
from workloads.contract import Workload

STEPS_AHEAD = 2
"""Steps that the host gives to the device ahead of the one that it computes."""

Values = list[Any]
"""Arrays of variables."""


class StatelessOptimiser:
    """The Keras optimiser as updates call it (`updates.contract`), within a traced function."""

    def __init__(self, optimiser: Any) -> None:
        self._optimiser = optimiser
        self._before: tuple[Values, Values] = [], []
        self.after: tuple[Values, Values] = [], []
        """Trained values and the optimiser's own, once `apply` was called."""

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
        self, model: Any, optimiser: Any, workload: Workload, collective: Collective, request: TrainRequest
    ) -> None:
        super().__init__(model, optimiser, collective)
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
        self._stateless = StatelessOptimiser(optimiser)
        self._update = UPDATES.load(choose_update(collective.size))(self._stateless, collective)
        self._train_alone = jax.jit(self._whole_step, donate_argnums=(0, 1, 2))
        self._gradients = jax.jit(self._scaled_gradients)
        self._apply_together = (
            cast(JaxCollective, collective).together(self._applied_together) if collective.size > 1 else None
        )
        self._score = jax.jit(self._own_scores)
        self._compiled: dict[tuple[str, int], Any] = {}
        self._under_way: deque[Any] = deque()
        """Results of the last steps, the oldest first."""

    def _values(self) -> tuple[Values, Values, Values]:
        return (
            [variable.value for variable in self._trained],
            [variable.value for variable in self._others],
            [variable.value for variable in self._optimiser.variables],
        )

    def prepare(self, blank: BlankBatch, sizes: Sequence[int]) -> None:
        """Compile for training batches of these sizes and for the evaluation; nothing runs."""
        values = jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype), self._values())
        step = self._train_alone if self._collective.size == 1 else self._gradients
        for size in {size for size in sizes if size}:
            self._compiled["train", size] = step.lower(*values, *blank(size)).compile()
        whole = blank(self._batch_size)
        mask = np.ones(self._batch_size, np.float32)
        self._compiled["score", self._batch_size] = self._score.lower(*values[:2], *whole, mask).compile()

    def program_bytes(self, size: int) -> int | None:
        """Bytes that the training program takes for what it computes, for a batch of this size.

        None if it is not prepared.
        """
        program = self._compiled.get(("train", size))
        return None if program is None else int(program.memory_analysis().temp_size_in_bytes)

    def _scale(self, own: Values) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(self._optimiser.variables, own, strict=True))):
            return jnp.asarray(self._optimiser.scale_loss(1.0), jnp.float32)

    def _own_gradients(
        self, trained: Values, others: Values, scale: Any, images: Any, labels: Any
    ) -> tuple[Any, Values, Values]:
        """Sums of this rank, gradients of its mean loss times the scale, and moving statistics."""

        def loss_of(trained: Values) -> Any:
            known = [*zip(self._trained, trained, strict=True), *zip(self._others, others, strict=True)]
            with keras.StatelessScope(state_mapping=known) as scope:
                outputs = self._body(images, training=True)
            losses = self._loss(labels, outputs)
            sums = jnp.stack([losses.sum(), jnp.float32(images.shape[0])])
            return losses.mean() * scale, (sums, [scope.get_current_value(variable) for variable in self._others])

        gradients, (sums, after) = jax.grad(loss_of, has_aux=True)(trained)
        return sums, gradients, after

    def _applied(self, trained: Values, own: Values, gradients: Values, sums: Any) -> tuple[Any, Values, Values]:
        """The step's results, and the values after the update."""
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

    def _scaled_gradients(
        self, trained: Values, others: Values, own: Values, images: Any, labels: Any
    ) -> tuple[Any, Values, Values]:
        return self._own_gradients(trained, others, self._scale(own), images, labels)

    def _applied_together(self, shared: tuple[Values, Values], gradients: tuple[Values, Any]) -> Any:
        return self._applied(*shared, *gradients)

    def _train_together(self, images: Any, labels: Any) -> tuple[Any, Values, Values, Values]:
        """Own gradients, then the update with those of all ranks; no images have none."""
        assert self._apply_together is not None
        trained, others, own = self._values()
        sums, gradients = jnp.zeros(2), [jnp.zeros_like(value) for value in trained]
        if len(images):
            step = self._compiled.get(("train", len(images)), self._gradients)
            sums, gradients, others = step(trained, others, own, images, labels)
        results, trained, own = self._apply_together((trained, own), (gradients, sums))
        return results, trained, others, own

    def _own_scores(self, trained: Values, others: Values, images: Any, labels: Any, mask: Any) -> Any:
        known = [*zip(self._trained, trained, strict=True), *zip(self._others, others, strict=True)]
        with keras.StatelessScope(state_mapping=known):
            outputs = self._body(images, training=False)
        return jnp.stack([*(jnp.sum(score(labels, outputs) * mask) for score in self._scores), mask.sum()])

    def train(self, images: Any, labels: Any) -> Any:
        """Do one update; the sum of the losses, the images, and the norm of the gradient."""
        images, labels = _array(images), _array(labels)
        if self._collective.size == 1:
            step = self._compiled.get(("train", len(images)), self._train_alone)
            results, trained, others, own = step(*self._values(), images, labels)
        else:
            results, trained, others, own = self._train_together(images, labels)
        for variables, values in (
            (self._trained, trained), (self._others, others), (self._optimiser.variables, own),
        ):  # fmt: skip
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        self._under_way.append(results)
        if len(self._under_way) > STEPS_AHEAD:
            # JAX queues about 32 steps, each with the memory of its batch.
            jax.block_until_ready(self._under_way.popleft())
        return results

    def evaluate(self, images: Any, labels: Any) -> Any:
        """Sums over all ranks: loss, metrics, images."""
        count = len(images)
        filled = max(count, self._batch_size)
        mask = (np.arange(filled) < count).astype(np.float32)
        trained, others, _ = self._values()
        step = self._compiled.get(("score", filled), self._score)
        own = step(trained, others, _filled(_array(images), filled), _filled(_array(labels), filled), mask)
        return self._collective.sum_tensors([own], "scores")[0]

    def read(self, results: Sequence[Any]) -> NDArray[np.float32]:
        """Wait for the steps that gave these results; a row for each of them."""
        return np.stack([np.asarray(each) for each in results])


def _array(values: Any) -> Any:
    """Arrays of JAX as they are, all others as NumPy's."""
    return values if isinstance(values, jax.Array) else np.asarray(values, np.float32)


def _filled(array: Any, rows: int) -> Any:
    missing = rows - len(array)
    return np.pad(np.asarray(array), [(0, missing)] + [(0, 0)] * (array.ndim - 1)) if missing else array
