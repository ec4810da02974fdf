"""Several networks as one Keras model, which owns their variables."""

from collections.abc import Iterable
from typing import Any

import keras


class Networks(keras.Model):  # type: ignore[misc]
    """Networks that train together; a task calls them one by one."""

    def __init__(self, networks: dict[str, Any]) -> None:
        super().__init__()
        for name, network in networks.items():
            setattr(self, name, network)
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Raise NotImplementedError: tasks call the networks one by one."""
        raise NotImplementedError("call the networks one by one")


def redraw(variables: Iterable[Any], deviation: float) -> None:
    """Draw variables anew from the normal distribution around 0, by Keras's global generator."""
    for variable in variables:
        variable.assign(keras.random.normal(variable.shape, stddev=deviation, dtype=variable.dtype))
