"""Operations of XLA's instructions: by hand, and next to XLA's own cost analysis."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from replica.measure.profile.recorded.xplane import work_of
from tests.support.folders import ROOT

F32, S32 = 11, 4


def made(opcode: str, shape: tuple[int, ...], *operands: int, element_type: int = F32, **facts: Any) -> Any:
    kind = SimpleNamespace(element_type=element_type, dimensions=shape)
    return SimpleNamespace(opcode=opcode, shape=kind, operand_ids=operands, **facts)


def test_padding_and_holes_of_a_convolution_are_not_operations() -> None:
    # One axis: 5 elements, 3 taps, stride 2, one zero in front: taps at -1..1, 1..3, 3..5 of 0..4.
    window = SimpleNamespace(size=3, stride=2, padding_low=1, window_dilation=1, base_dilation=1)
    axes = SimpleNamespace(
        input_batch_dimension=0,
        input_feature_dimension=2,
        input_spatial_dimensions=(1,),
        kernel_input_feature_dimension=1,
        kernel_output_feature_dimension=2,
        kernel_spatial_dimensions=(0,),
        output_spatial_dimensions=(1,),
    )
    known = {1: made("parameter", (6, 5, 4)), 2: made("parameter", (3, 4, 7))}
    facts: dict[str, Any] = {"convolution_dimension_numbers": axes, "batch_group_count": 1}
    forward = made("convolution", (6, 3, 7), 1, 2, window=SimpleNamespace(dimensions=[window]), **facts)
    assert work_of(forward, known) == 2 * 6 * (4 * 7) * (2 + 3 + 2)
    # With a hole between any two elements, taps meet 0, 2, 4, 6, 8 alone.
    holes = SimpleNamespace(size=3, stride=1, padding_low=1, window_dilation=1, base_dilation=2)
    gradient = made("convolution", (6, 9, 7), 1, 2, window=SimpleNamespace(dimensions=[holes]), **facts)
    assert work_of(gradient, known) == 2 * 6 * (4 * 7) * (5 + 4 * 2)


def test_products_elements_and_what_is_none() -> None:
    known = {1: made("parameter", (8, 5)), 2: made("parameter", (5, 3)), 3: made("parameter", (8, 5), element_type=S32)}
    contracted = SimpleNamespace(lhs_contracting_dimensions=(1,))
    assert work_of(made("dot", (8, 3), 1, 2, dot_dimension_numbers=contracted), known) == 2 * 8 * 5 * 3
    assert work_of(made("add", (8, 5), 1, 1), known) == 40
    assert work_of(made("compare", (8, 5), 1, 1, element_type=1), known) == 40
    assert work_of(made("reduce", (8,), 1, 1), known) == 40
    assert work_of(made("add", (8, 5), 3, 3, element_type=S32), known) == 0, "of integers"
    assert work_of(made("transpose", (5, 8), 1), known) == 0
    assert work_of(made("custom-call", (8, 3), 1, 2), known) is None


PROGRAM = """
import json, sys
import jax, jax.numpy as jnp
from jax import lax
from tensorflow.compiler.xla.service import hlo_pb2
from replica.measure.profile.recorded.xplane import instructions

def loss(w, v, x):
    y = lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = lax.conv_general_dilated(jnp.maximum(y, 0), w.swapaxes(2, 3), (1, 1), "SAME",
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jnp.sum(jnp.mean(y, (1, 2)) @ v)

compiled = jax.jit(jax.grad(loss, (0, 1))).lower(
    jnp.zeros((3, 3, 8, 16)), jnp.zeros((8, 5)), jnp.zeros((4, 17, 14, 8))
).compile()
module = hlo_pb2.HloModuleProto()
module.ParseFromString(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())
entry = next(each for each in module.computations if each.id == module.entry_computation_id)
ran = [instructions(module)[module.name, each.name] for each in entry.instructions]
work = sum(each for one in ran for _, each in one.work)
print(json.dumps({"ours": work, "xla": compiled.cost_analysis()["flops"],
                  "opcodes": sorted({each.opcode for each in entry.instructions})}))
"""


def test_a_compiled_gradient_counts_as_xla_counts_it() -> None:
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ours"] == pytest.approx(found["xla"], rel=0.02), found
