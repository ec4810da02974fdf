"""The operations of a training step's graph, by the rules of TensorFlow's profiler."""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from replica.measure.profile.executed.contract import Executed
from replica.measure.profile.networks.batches import mean_square
from replica.measure.profile.recorded.operations import NO_LAYER, kind_of
from replica.measure.profile.recorded.recording import Event
from replica.measure.profile.subject import Subject

FREE = frozenset((
    "Const", "Placeholder", "ReadVariableOp", "Identity", "IdentityN", "NoOp", "Cast", "Shape", "ShapeN", "Reshape",
    "Transpose", "Squeeze", "ExpandDims", "StridedSlice", "StridedSliceGrad", "Slice", "Pad", "ConcatV2",
    "ConcatOffset", "Pack", "Fill", "ZerosLike", "OnesLike", "Tile", "BroadcastTo", "BroadcastGradientArgs",
    "DynamicStitch", "Range", "Prod", "FloorMod", "FloorDiv", "StopGradient", "PreventGradient", "InvertPermutation",
    "ResizeNearestNeighbor",
))  # fmt: skip
"""Operations on shapes and places, which compute nothing with numbers."""


def count(subject: Subject, batch: tuple[Any, ...], events: Sequence[Event], steps: int) -> Executed:
    """Trace forward and backward pass again on the batch's shape; nothing runs.

    Loss and update, which belong to no layer, are not in it.
    """
    from tensorflow.python.framework import ops  # noqa: PLC0415  (the table of the profiler's rules)
    from tensorflow.python.profiler.internal import flops_registry  # noqa: F401, PLC0415  (fills it)

    names = {node.name: node.layer.kind for node in subject.architecture.nodes}
    found: dict[str, float] = {}
    unknown: dict[str, set[str]] = {}
    graph = _gradient_graph(subject.model, len(batch[0]))
    for operation in _reached(graph):
        kind = kind_of(operation.name, names)
        if kind == NO_LAYER or operation.type in FREE:
            continue
        try:
            counted = ops.get_stats_for_node_def(graph, operation.node_def, "flops").value
        except ValueError:  # a shape that is not known before the step runs
            counted = None
        if counted is None:
            unknown.setdefault(kind, set()).add(operation.type)
        found[kind] = found.get(kind, 0.0) + (counted or 0)
    reasons = {kind: f"TensorFlow's profiler has no rule for {', '.join(sorted(of))}" for kind, of in unknown.items()}
    return Executed("TensorFlow's profiler on the graph of the step", found, reasons)


def _gradient_graph(model: Any, images: int) -> Any:
    def gradients(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = mean_square(model(inputs, training=True))
        return tape.gradient(loss, model.trainable_variables)

    given = tf.TensorSpec((images, *model.input_shape[1:]), tf.float32)
    return tf.function(gradients).get_concrete_function(given).graph


def _reached(graph: Any) -> Iterator[Any]:
    """Find the operations that results depend on: others, which the tape has left, do not run."""
    waiting = [*(tensor.op for tensor in graph.outputs), *graph.control_outputs]
    seen: set[str] = set()
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
            yield operation
