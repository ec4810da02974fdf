"""Independent counts to compare with ours: TensorFlow's profiler, XLA's cost analysis, and the
counters of a GPU if they can be read.
"""

import importlib.util
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from aiperf.cli.lines import warn
from aiperf.cli.packages import to_install
from aiperf.errors import AiperfError, EnvironmentNotReadyError
from aiperf.network.operations import AIPERF_1, Operations, RuleSet
from aiperf.processes import python_module
from aiperf.untrusted.reading import reason_of, shortened
from replica.measure.counting import gpu_counters
from replica.measure.counting.keras_operations import graph_of

XLA_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class Verification:
    """The operations of one image as a source counts them; None if it does not."""

    source: str
    forward: float
    training: float | None

    def differences(self, analytical: Operations) -> tuple[float, float | None]:
        """The relative differences to the analytical count, of forward and forward + backward."""
        training = None if self.training is None else self.training / analytical.total - 1
        return self.forward / analytical.forward - 1, training


def verify(path: Path, model: Any, rule_set: RuleSet = AIPERF_1) -> list[Verification]:
    """Count the model of a file with each profiler. Raises EnvironmentNotReadyError without JAX.

    Raises AiperfError naming the profiler that cannot count the model, and its reason.
    Scientific networks are counted by XLA alone: TensorFlow's profiler has no rule for
    transposed convolutions in three dimensions. Counters of a GPU that cannot be read after all
    are a warning: the other counts are there.
    """
    if rule_set is not AIPERF_1:
        return [xla(path, lowered=True)]
    found = [Verification("TensorFlow profiler", tensorflow_forward(model), None), xla(path)]
    if gpu_counters.why_not() is None:
        try:
            found.append(Verification("Nsight Compute", *gpu_counters.counted(path)))
        except AiperfError as error:
            warn(f"aiperf: WARNING: {error}")
    return found


def tensorflow_forward(model: Any) -> float:
    """Count the floating-point operations of one image's forward pass by TensorFlow's profiler.

    The model may have any structure of inputs and outputs. Raises AiperfError if it cannot be
    traced.
    """
    # The profiler needs a graph of constants: it does not know the shapes of variables.
    from tensorflow.python.framework.convert_to_constants import (  # noqa: PLC0415
        convert_variables_to_constants_v2,
    )

    example = tf.nest.map_structure(
        lambda tensor: tf.TensorSpec((1, *tensor.shape[1:]), tensor.dtype), graph_of(model).input
    )
    try:
        function = tf.function(lambda x: model(x, training=False), autograph=False).get_concrete_function(example)
        graph = convert_variables_to_constants_v2(function).graph
        builder = tf.compat.v1.profiler.ProfileOptionBuilder
        options = builder(builder.float_operation()).with_empty_output().build()
        return float(tf.compat.v1.profiler.profile(graph, options=options).total_float_ops)
    except Exception as error:  # of any kind: TensorFlow raises what it comes across
        raise AiperfError(f"TensorFlow's profiler cannot count {model.name!r}: {reason_of(error)}") from None


def xla(path: Path, lowered: bool = False) -> Verification:
    """Ask XLA's cost analysis of forward pass and training step: compiled, or only lowered.

    Raises EnvironmentNotReadyError.
    """
    if importlib.util.find_spec("jax") is None:
        raise EnvironmentNotReadyError(
            [f"JAX is not installed, which gives XLA's cost analysis; {to_install('verify')}"]
        )
    # A process of its own: this one has Keras on TensorFlow, and a process has one backend.
    result = subprocess.run(
        python_module("replica.measure.counting.xla_cost", str(path.absolute()), *(["lowered"] if lowered else [])),
        capture_output=True,
        text=True,
        timeout=XLA_TIMEOUT_S,
        check=False,
    )
    if result.returncode != 0:
        said = result.stderr.strip().splitlines() or [f"its process ended with code {result.returncode}"]
        raise AiperfError(f"XLA cannot count {path}: {shortened(said[-1])}")
    counts = json.loads(result.stdout.splitlines()[-1])
    return Verification("XLA cost analysis", counts["forward"], counts["training"])
