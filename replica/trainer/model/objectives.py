"""Losses and metrics as Keras functions, and models up to the logits that losses are made of."""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np

from aiperf.errors import TrialFailedError
from workloads.contract import PerExample

Objective = Callable[[Any, Any], Any]
"""Function that gives one number per example from labels and outputs."""


def find(function: PerExample) -> Objective:
    """Find the function of labels and outputs, in Keras's own framework.

    Raises TrialFailedError ("build") if Keras has no loss or metric of that name.
    """
    for place in (keras.losses, keras.metrics):
        found = getattr(place, function.name, None)
        if found is not None:
            return partial(found, **function.settings)
    raise TrialFailedError("build", f"Keras has no loss or metric {function.name!r}")


def find_of_logits(function: PerExample) -> Objective:
    """Find the function of labels and logits, the inputs of the final softmax.

    TensorFlow computes cross-entropy from logits by itself if it finds a softmax in the graph. On
    other frameworks Keras would clip the probabilities, and with them the gradients. Raises
    TrialFailedError ("build").
    """
    found: Any = find(function)
    settings: dict[str, Any] = {"from_logits": True}
    if smoothing := function.settings.get("label_smoothing"):
        settings["label_smoothing"] = 0.0
        return lambda labels, logits: found(_smooth(labels, smoothing), logits, **settings)
    if function.name.endswith("crossentropy"):
        return lambda labels, logits: found(labels, logits, **settings)
    return lambda labels, logits: found(labels, keras.ops.softmax(logits, axis=-1))


def _smooth(labels: Any, smoothing: float) -> Any:
    """Move a part of each label to all classes alike (Szegedy et al. 2016).

    Keras does the same with numbers that it makes tensors of: on PyTorch each would be copied to
    the device in every step, which waits for all steps under way and cannot be a part of a graph.
    """
    share = float(np.float32(smoothing) / np.float32(labels.shape[-1]))
    return labels * (1.0 - smoothing) + share


def cross_entropy_of_logits(logits: Any, labels: Any) -> Any:
    """Minus the logarithm of the label's probability, by element; labels are from 0 to 1.

    The form max(x, 0) - x z + log(1 + exp(-|x|)) overflows for no logit x.
    """
    return keras.ops.maximum(logits, 0.0) - logits * labels + keras.ops.log1p(keras.ops.exp(-keras.ops.abs(logits)))


def without_softmax(model: Any) -> Any | None:
    """Make the model up to its final softmax, of the same layers; None if it ends in another layer.

    Its output is float32 as that of the softmax is.
    """
    last = model.output._keras_history.operation
    if not isinstance(last, keras.layers.Softmax):
        return None
    return keras.Model(model.inputs, keras.ops.cast(last.input, "float32"))


def logits_of(model: Any) -> Any:
    """Make a model of the same layers whose outputs are the inputs of softmaxes and sigmoids.

    These are float32, since losses need more than 16 bits; outputs of other layers stay.
    """
    outputs = [_logit(output) for output in model.outputs]
    return keras.Model(model.input, outputs if len(outputs) > 1 else outputs[0])


def _logit(output: Any) -> Any:
    history = output._keras_history
    last = history.operation
    squashes = isinstance(last, keras.layers.Softmax) or (
        isinstance(last, keras.layers.Activation) and last.activation is keras.activations.sigmoid
    )
    # A layer that several models use has a node for each of them.
    return keras.ops.cast(last._inbound_nodes[history.node_index].input_tensors[0], "float32") if squashes else output
