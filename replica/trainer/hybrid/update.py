"""The update of a group by parameter servers, which apply the mean gradient of its ranks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from replica.trainer.collectives.contract import Collective
from replica.trainer.hybrid.group import GroupCollective
from replica.trainer.model.state import assign, copied


class HybridUpdate:
    """Synchronous in a group, asynchronous between groups (Kurth et al. 2017).

    The mean over the group's images is that of `SynchronousUpdate`. The root sends it to the
    servers with the rate, which follows from the images that all groups have trained. Clipping
    needs the norm over all parameters, of which a server has a part: the root clips.

    With float16, every group scales its loss by a factor of its own, as Keras's
    `LossScaleOptimizer` does: servers get gradients without it. A step whose gradients are not
    finite is sent as zeros at a rate of 0: its images count, and the servers change nothing.
    """

    compilable = False
    traceable = False

    def __init__(self, optimiser: Any, collective: Collective) -> None:
        assert isinstance(collective, GroupCollective)
        inner = getattr(optimiser, "inner_optimizer", None)
        self._scaling = None if inner is None else optimiser
        """The scaling of the loss, an optimiser around another one; None: there is none."""
        self._largest = (inner or optimiser).global_clipnorm
        """The largest norm of the gradients; None: they are not clipped."""
        self._group = collective

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any], sums: Any) -> tuple[Any, Sequence[Any]]:
        """Exchange the group's mean gradients for new values; not before the training begins."""
        exchange = self._group.exchange
        # Frameworks return before the device has computed: a copy waits, so that the lap is true.
        copied(sums)
        if exchange is not None:
            exchange.lap("computing_s")
        totals, means = (sums, gradients) if self._group.size == 1 else self._group.average_gradients(gradients, sums)
        if exchange is None:
            return totals, means
        # Only the root needs the gradients on the host: other ranks save the copies, unless they
        # find by them, as the root does, how the scale goes on.
        images, finite = round(float(copied(totals)[1])), True
        is_root, sent = self._group.rank == 0, list[Any]()
        if is_root or self._scaling is not None:
            sent = [copied(gradient) for gradient in means]
        if self._scaling is not None:
            sent, finite = self._unscaled(self._scaling, sent)
        sent = self._clipped(sent) if is_root else []
        exchange.lap("group_s")
        answer = exchange.push(sent, images, finite)
        assign(variables, answer.values)
        return totals, means

    @staticmethod
    def _unscaled(scaling: Any, gradients: list[Any]) -> tuple[list[Any], bool]:
        """The gradients without the scale of the loss, or zeros, and whether they are finite.

        The scale doubles after `dynamic_growth_steps` finite steps in a row, and halves after one
        that is not.
        """
        scale, steps = float(copied(scaling.dynamic_scale)), int(copied(scaling.step_counter)) + 1
        finite = all(np.isfinite(gradient).all() for gradient in gradients)
        grows = finite and steps == scaling.dynamic_growth_steps
        scaling.step_counter.assign(steps if finite and not grows else 0)
        scaling.dynamic_scale.assign(scale * (2.0 if grows else 1.0 if finite else 0.5))
        inverse = np.float32(1 / scale)
        return [gradient * inverse if finite else np.zeros_like(gradient) for gradient in gradients], finite

    def _clipped(self, gradients: list[Any]) -> list[Any]:
        """The gradients, scaled down to the optimiser's largest norm."""
        largest = self._largest
        if largest is None:
            return gradients
        norm = float(np.sqrt(sum(float(np.sum(np.square(gradient))) for gradient in gradients)))
        return gradients if norm <= largest else [gradient * np.float32(largest / norm) for gradient in gradients]
