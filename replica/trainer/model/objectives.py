"""A workload's loss and metrics as Keras functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras

from aiperf.errors import TrialFailedError
from workloads.contract import PerExample


def find(function: PerExample) -> Callable[[Any, Any], Any]:
    """The function of labels and outputs, in Keras's own framework.

    Raises TrialFailedError ("build") if Keras has no loss or metric of that name.
    """
    for place in (keras.losses, keras.metrics):
        found = getattr(place, function.name, None)
        if found is not None:
            return partial(found, **function.settings)
    raise TrialFailedError("build", f"Keras has no loss or metric {function.name!r}")
