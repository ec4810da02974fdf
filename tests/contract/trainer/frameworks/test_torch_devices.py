"""PyTorch's steps as an accelerator needs them: no wait for it, little memory to warm up with."""

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from aiperf.errors import TrialFailedError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import BatchNorm, Conv, Dense, Dropout, Flatten, Input, ReLU, Softmax
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.model.builder import build_model, set_up
from replica.trainer.model.optimisers import build_optimiser
from search_space.resnet import resnet
from tests.support.trainings.requests import request_for
from workloads.classification import CLASSIFICATION

ON_TORCH = pytest.mark.parametrize("trains_on", ["torch"])

SMALL = Architecture(
    (
        Node("in", Input(8, 8, 3)),
        Node("conv", Conv(4), ("in",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("relu", ReLU(), ("bn",)),
        Node("flat", Flatten(), ("relu",)),
        Node("drop", Dropout(0.3), ("flat",)),
        Node("fc", Dense(3), ("drop",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)


def steps_in(precision: str, seed: int = 1) -> tuple[Any, Any]:
    """Steps of the small network, and its optimiser."""
    from replica.trainer.frameworks.torch.steps import TorchSteps

    set_up(precision, seed=seed)
    model, request = build_model(SMALL), request_for("digits", precision=precision)
    optimiser = build_optimiser(model, request)
    return TorchSteps(model, optimiser, CLASSIFICATION, AloneCollective(), request), optimiser


def batch(scale: float = 1.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return scale * rng.normal(size=(6, 8, 8, 3)).astype(np.float32), np.eye(3, dtype=np.float32)[np.arange(6) % 3]


@ON_TORCH
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_step_never_waits_for_the_device(trains_on: str, precision: str) -> None:
    from tests.support.trainings.host_reads import Operations

    steps, _ = steps_in(precision)
    steps.train(*batch())
    with Operations() as counting:
        results = []
        for number in range(3):
            steps.set_learning_rate(0.1 - 0.01 * number)
            results.append(steps.train(*batch()))
    assert counting.seen["convolution_backward"] == 3, "the steps were seen"
    assert counting.host_reads == {}
    with counting:
        float(results[0][0])
    assert counting.host_reads == {"_local_scalar_dense": 1}, "a wait would have been seen"


@ON_TORCH
def test_the_fused_descent_scales_the_loss_as_keras_does(trains_on: str) -> None:
    from replica.trainer.frameworks.torch.descent import FusedDescent, KerasDescent

    after = []
    for kind in (KerasDescent, FusedDescent):
        steps, optimiser = steps_in("mixed_float16")
        optimiser.dynamic_growth_steps = 2
        if kind is KerasDescent:
            steps._update._optimiser = steps._descent = KerasDescent(optimiser, steps._trained, steps._parameters)
        assert type(steps._descent) is kind
        seen, scales = [], []
        # The third batch overflows in float16, and changes no weight.
        for number, scale in enumerate((1.0, 1.0, 1e30, 1.0, 1.0, 1.0)):
            before = steps.weights()[0]
            steps.set_learning_rate(0.1 - 0.01 * number)
            seen.append(steps.read([steps.train(*batch(scale))])[0])
            scales.append((float(optimiser.dynamic_scale), int(optimiser.step_counter), int(optimiser.iterations)))
            assert (before == steps.weights()[0]).all() == (number == 2)
        after.append((np.stack(seen), scales, steps.weights()[0]))
    (rows, scales, weights), (fused_rows, fused_scales, fused_weights) = after
    assert fused_scales == scales
    finite = np.isfinite(rows)
    np.testing.assert_array_equal(np.isfinite(fused_rows), finite)
    np.testing.assert_allclose(fused_rows[finite], rows[finite], rtol=2e-3)
    np.testing.assert_allclose(fused_weights, weights, rtol=1e-4, atol=1e-5)


@ON_TORCH
def test_masks_are_those_of_kerass_generator_also_after_its_state_was_set(trains_on: str) -> None:
    import torch

    from replica.trainer.frameworks.torch.layers import Draws

    mine, other = (keras.random.SeedGenerator(987_654_321) for _ in range(2))
    draws, like = Draws(mine), torch.zeros(5, 3)

    def same() -> None:
        draws.seed()
        np.testing.assert_array_equal(
            draws.draw(like).numpy(), keras.ops.convert_to_numpy(keras.random.uniform((5, 3), seed=other))
        )

    same()
    same()
    for generator in (mine, other):
        generator.state.assign([7, 40])
    same()
    same()
    assert keras.ops.convert_to_numpy(mine.state).tolist() == [7, 42]


@ON_TORCH
def test_each_different_part_is_tried_alone_and_nothing_changes(trains_on: str) -> None:
    from replica.trainer.frameworks.torch.network import network_of

    set_up("float32", seed=1)
    model = build_model(resnet(50, 32, 10))
    network: Any = network_of(model)
    before = model.get_weights()
    convolutions = sum(isinstance(layer, keras.layers.Conv2D) for layer in model.layers)
    assert convolutions == 53
    # 20 convolutions, and behind each but those in front of a sum its own shape of normalisation
    # and ReLU.
    assert network.try_steps(2) == 33, "blocks of a stage are alike"
    for mine, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, other)


@ON_TORCH
def test_a_warm_up_takes_little_of_an_accelerators_memory(trains_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from replica.trainer.frameworks.torch.memory import little_memory

    limits: list[float] = []
    module = SimpleNamespace(
        set_per_process_memory_fraction=limits.append,
        mem_get_info=lambda: (0, 80 * 10**9),
        memory_reserved=lambda: 10**9,
        empty_cache=lambda: limits.append(-1),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    for total, part, most in ((80, 1.0, 7.4), (16, 1.0, 4.0), (80, 0.5, 4.2), (16, 0.2, 3.2)):
        module.mem_get_info = lambda total=total: (0, total * 10**9)
        module.get_per_process_memory_fraction = lambda part=part: part
        limits.clear()
        with pytest.raises(RuntimeError, match="shape"), little_memory("cuda"):
            limits.append(0)
            raise RuntimeError("shape mismatch")
        assert limits == [pytest.approx(most / total), 0, part, -1]


@ON_TORCH
def test_a_graph_takes_no_memory_of_another_replica(trains_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from replica.trainer.frameworks.torch.memory import limit_memory
    from replica.trainer.frameworks.torch.step_graph import short_of_memory

    cuda, limits = torch.cuda, list[float]()
    monkeypatch.setattr(torch, "get_device_module", lambda device: cuda)
    monkeypatch.setattr(cuda, "set_per_process_memory_fraction", limits.append)
    limit_memory(0.5)
    assert limits == [0.5]
    monkeypatch.setattr(cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(cuda, "mem_get_info", lambda device: (60 * 10**9, 80 * 10**9))
    monkeypatch.setattr(cuda, "memory_reserved", lambda device: 10 * 10**9)
    monkeypatch.setattr(cuda, "memory_allocated", lambda device: 10 * 10**9)
    monkeypatch.setattr(cuda, "max_memory_allocated", lambda device: 30 * 10**9)
    for part, short in ((1.0, None), (0.5, "30.0 GB are free, and a step takes 20.0 GB")):
        monkeypatch.setattr(cuda, "get_per_process_memory_fraction", lambda part=part: part)
        assert short_of_memory(torch.device("cuda")) == short
    # The next trial's ranks may need 8 % of it.
    monkeypatch.setattr(cuda, "get_per_process_memory_fraction", lambda: 1.0)
    monkeypatch.setattr(cuda, "mem_get_info", lambda device: (50 * 10**9, 80 * 10**9))
    assert short_of_memory(torch.device("cuda")) == "43.6 GB are free, and a step takes 20.0 GB"


@ON_TORCH
def test_what_there_is_no_memory_to_try_is_left_and_the_rest_is_tried(
    trains_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from replica.trainer.frameworks.torch.network import network_of

    set_up("float32", seed=1)
    network: Any = network_of(build_model(SMALL))
    steps = network._try

    def short_for_convolutions(sample: Any, images: int) -> None:
        if sample.shapes == ((8, 8, 3),):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 GiB.")
        steps(sample, images)

    monkeypatch.setattr(network, "_try", short_for_convolutions)
    assert network.try_steps(2) == 1, "the region behind the convolution"
    monkeypatch.setattr(network, "_try", lambda sample, images: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size"):
        network.try_steps(2)


@ON_TORCH
def test_variables_that_lie_on_the_cpu_next_to_an_accelerator_are_refused(
    trains_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from replica.trainer.frameworks.torch.framework import check_device

    check_device("cpu")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: SimpleNamespace(type="npu"))
    check_device("npu")
    with pytest.raises(TrialFailedError, match="'cpu', not on this node's 'npu': set KERAS_TORCH_DEVICE") as raised:
        check_device("cpu")
    assert raised.value.kind == "unfit"
