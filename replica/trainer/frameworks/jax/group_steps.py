"""The steps of a rank in a hybrid training on JAX: a step's program ends with the gradients.

Parameter servers apply them; the variables themselves take the servers' values.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from aiperf.wire.messages import ArchitectureRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.framework import BlankBatch
from replica.trainer.frameworks.jax.raw_state import Values
from replica.trainer.frameworks.jax.steps import JaxSteps, filled, mask_of
from replica.trainer.model.state import assign
from workloads.contract import Workload


class GroupSteps(JaxSteps):
    """Steps whose update takes place between programs (`CompiledSteps`).

    Batches are filled up, so that there is one program.
    """

    def __init__(
        self, model: Any, optimiser: Any, workload: Workload, collective: Collective, request: ArchitectureRequest
    ) -> None:
        super().__init__(model, optimiser, workload, collective, request)
        self._train = jax.jit(self._own_gradients)

    def _prepare_training(self, values: list[Values], whole: Any, blank: BlankBatch, sizes: Sequence[int]) -> None:
        self._compiled["train", self._batch_size] = self._train.lower(*values[:2], jnp.float32(1), *whole).compile()

    def _step(self, images: Any, labels: Any) -> Any:
        count, size = len(images), max(len(images), self._batch_size)
        step = self._compiled.get(("train", size), self._train)
        values = [[variable.value for variable in each] for each in (self._trained, self._others)]
        # Read before the update, which may change it.
        scale = jnp.asarray(self._optimiser.scale_loss(1.0), jnp.float32)
        given = filled(images, size), filled(labels, size), mask_of(count, size)
        sums, gradients, others = step(*values, scale, *given)
        totals, applied = self._update.apply(gradients, self._trained, sums)
        assign(self._others, others)
        norm = jnp.sqrt(sum(jnp.vdot(each, each) for each in applied)) / scale
        return jnp.concatenate([totals, norm[None]])
