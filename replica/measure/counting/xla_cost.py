"""XLA's count of operations, as JSON: `python -m replica.measure.counting.xla_cost FILE [lowered]`.

It runs in a process of its own, because it builds the Keras model on the JAX backend: JAX gives
access to the cost analysis of a compiled program. The programs are compiled for the CPU and
executed once, on one image. With `lowered`, the programs are only translated for XLA: networks of
any size are counted in seconds. The loss is the cross-entropy of one vector of probabilities; of
several outputs, or of another shape, their mean.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from aiperf.frameworks import import_lean


def main() -> int:
    """Count one forward pass and one training step (plain gradient descent) of a file's model."""
    os.environ["KERAS_BACKEND"] = "jax"
    # Accelerators may be busy, or too small for the network.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    print(json.dumps(measure(Path(sys.argv[1]), lowered=sys.argv[2:] == ["lowered"])))  # noqa: T201
    return 0


def measure(path: Path, lowered: bool = False) -> dict[str, float]:
    """Count the `forward` and `training` operations of one image, as XLA counts its programs."""
    import jax  # noqa: PLC0415

    keras = import_lean("keras")
    from replica.measure.counting.keras_operations import graph_of  # noqa: PLC0415
    from replica.trainer.model.model_files import load_any  # noqa: PLC0415

    model = load_any(path)
    trained = [variable.value for variable in model.trainable_variables]
    kept = [variable.value for variable in model.non_trainable_variables]
    images = jax.tree.map(lambda tensor: jax.numpy.zeros((1, *tensor.shape[1:]), tensor.dtype), graph_of(model).input)
    outputs = jax.tree.leaves(model.output_shape, is_leaf=lambda shape: isinstance(shape, tuple) and None in shape)
    classifies = not lowered and len(outputs) == 1 and len(outputs[0]) == 2
    labels = jax.nn.one_hot(jax.numpy.array([0]), outputs[0][-1]) if classifies else None
    flops = _lowered_flops if lowered else _flops

    def forward(weights: Any, state: Any, x: Any) -> Any:
        return model.stateless_call(weights, state, x, training=False)[0]

    def loss(weights: Any, state: Any, x: Any, y: Any) -> Any:
        outputs, new_state = model.stateless_call(weights, state, x, training=True)
        if y is None:
            return sum(map(jax.numpy.mean, jax.tree.leaves(outputs))), new_state
        return jax.numpy.mean(keras.losses.categorical_crossentropy(y, outputs)), new_state

    def train(weights: Any, state: Any, x: Any, y: Any) -> Any:
        (value, new_state), gradients = jax.value_and_grad(loss, has_aux=True)(weights, state, x, y)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], new_state, value

    return {
        "forward": flops(jax, forward, (trained, kept, images)),
        "training": flops(jax, train, (trained, kept, images, labels)),
    }


def _lowered_flops(jax: Any, function: Any, arguments: tuple[Any, ...]) -> float:
    return float(jax.jit(function).lower(*arguments).cost_analysis()["flops"])


def _flops(jax: Any, function: Any, arguments: tuple[Any, ...]) -> float:
    compiled = jax.jit(function).lower(*arguments).compile()
    jax.block_until_ready(compiled(*arguments))
    analysis = compiled.cost_analysis()
    return float((analysis[0] if isinstance(analysis, list) else analysis)["flops"])


if __name__ == "__main__":
    sys.exit(main())
