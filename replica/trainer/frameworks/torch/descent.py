"""Gradient descent on the variables of Keras's optimiser, in one fused operation if there is one.

Gradients come as the variables lie in memory (`parameters`).
"""

from collections.abc import Sequence
from typing import Any

import keras
import torch

from replica.trainer.frameworks.torch.parameters import Parameters

FUSED_ON = ("cpu", "cuda")
"""Kinds of devices that the fused operation runs on; AMD's are "cuda", too."""

RATE_OF_HOST_ON = ("cpu",)
"""Kinds of devices that take the rate as a number of the host; elsewhere a graph reads it."""

EXTRAS = (
    "nesterov",
    "weight_decay",
    "clipnorm",
    "global_clipnorm",
    "clipvalue",
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)
"""Settings of Keras's optimisers that the fused operation does not have."""


def descend(optimiser: Any, variables: Sequence[Any], parameters: Parameters) -> Any:
    """Make the optimiser as updates call it (`updates.contract`): fused if it can be."""
    scaling = optimiser if isinstance(optimiser, keras.optimizers.LossScaleOptimizer) else None
    inner = optimiser if scaling is None else scaling.inner_optimizer
    covered = (
        isinstance(inner, keras.optimizers.SGD)
        and inner.momentum
        and not any(getattr(inner, name) for name in EXTRAS)
        and all(variable.constraint is None for variable in variables)
        and variables[0].value.device.type in FUSED_ON
    )
    if covered:
        return FusedDescent(inner, variables, parameters, scaling)
    return KerasDescent(optimiser, variables, parameters)


class KerasDescent:
    """Keras's optimiser as it is."""

    unscales = False
    """True if `apply` takes the scale of the loss out of the gradients."""

    def __init__(self, optimiser: Any, variables: Sequence[Any], parameters: Parameters) -> None:
        self._optimiser = optimiser
        self._layouts = [parameters.layout(variable) for variable in variables]

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next updates."""
        # Filled on the device: copying the number there would wait for what is under way.
        self._optimiser.learning_rate.value.data.fill_(rate)

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Update the variables that it was made for."""
        pairs = zip(self._layouts, gradients, strict=True)
        self._optimiser.apply([layout.original(gradient) for layout, gradient in pairs], variables)


class FusedDescent:
    """Keras's SGD with momentum, and its scaling of the loss if there is one.

    It waits for nothing on the device, where the check for finite gradients also takes place.
    """

    unscales = True

    def __init__(
        self, optimiser: Any, variables: Sequence[Any], parameters: Parameters, scaling: Any | None = None
    ) -> None:
        self._optimiser = optimiser
        self._scaling: Any = scaling
        layouts = [parameters.layout(variable) for variable in variables]
        pairs = list(zip(layouts, variables, strict=True))
        self._values = [layout.memory(variable.value.detach()) for layout, variable in pairs]
        # The fused operation goes through values, gradients and momenta as they lie in memory: all
        # three must have one order.
        self._momenta = [
            layout.apply(optimiser.momentums[optimiser._get_variable_index(variable)]) for layout, variable in pairs
        ]
        self._rate = float(optimiser.learning_rate)
        device = self._values[0].device
        self._factor = None if device.type in RATE_OF_HOST_ON else torch.full((), -self._rate, device=device)
        """The negative rate on an accelerator, where a graph that is replayed reads it."""

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next updates."""
        self._rate = rate
        if self._factor is not None:
            self._factor.fill_(-rate)

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Update the variables that it was made for, unless a scaled gradient is not finite."""
        gradients = list(gradients)
        with torch.no_grad():
            found = None if self._scaling is None else self._unscaled(gradients)
            # Keras: m = momentum * m - rate * g, w = w + m. PyTorch: w = w - lr * m with
            # m = momentum * m + (1 - dampening) * g. While the rate falls, these agree only if
            # the rate is in the dampening, which is a number of the host, or in the gradients.
            if self._factor is not None:
                gradients = torch._foreach_mul(gradients, self._factor)
            torch._fused_sgd_(
                self._values,
                gradients,
                self._momenta,
                weight_decay=0.0,
                momentum=self._optimiser.momentum,
                lr=-1.0,
                dampening=1.0 + self._rate if self._factor is None else 0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,  # the momenta begin as zeros; a first step would take the gradient for them
                found_inf=found,
            )
            if found is None:
                # In place: a graph that is replayed counts as well.
                self._optimiser.iterations.value.add_(1)
                return
            self._optimiser.iterations.value.add_((1 - found[0]).to(self._optimiser.iterations.value.dtype))
            # As Keras does: the scale doubles after `dynamic_growth_steps` finite steps in a row,
            # and halves after a step that is not finite.
            scale, steps = self._scaling.dynamic_scale.value, self._scaling.step_counter.value
            torch._amp_update_scale_(scale, steps, found, 2.0, 0.5, self._scaling.dynamic_growth_steps)

    def _unscaled(self, gradients: list[Any]) -> Any:
        """Take the scale out of the gradients; (1,) float32: 1 if one of them is not finite."""
        scale = self._scaling.dynamic_scale.value
        found = torch.zeros(1, device=scale.device)
        # The scale is a power of two: its inverse is exact.
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, scale.reciprocal())
        return found
