"""PyTorch's steps as an accelerator needs them: no wait for it, little memory to warm up with."""

import itertools
import os
from contextlib import nullcontext
from importlib import reload
from pathlib import Path
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
def test_a_step_never_waits_for_the_device(trains_on: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from replica.trainer.frameworks.torch import descent
    from tests.support.trainings.host_reads import Operations

    monkeypatch.setattr(descent, "RATE_OF_HOST_ON", ())  # as on an accelerator
    steps, _ = steps_in(precision)
    pixels, labels = np.zeros((6, 8, 8, 3), np.uint8), batch()[1]
    steps.train(pixels, labels)
    with Operations() as counting:
        results = []
        for number in range(3):
            steps.set_learning_rate(0.1 - 0.01 * number)
            results.append(steps.train(pixels, labels))
    assert counting.seen["convolution_backward"] == 3, "the steps were seen"
    assert counting.host_reads == {}
    with counting:
        float(results[0][0])
        results[1].cpu().numpy()
    assert counting.host_reads == {"_local_scalar_dense": 1, "cpu": 1, "numpy": 1}, "a wait would have been seen"


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
    for total, part, most in ((80, 1.0, 7.4), (16, 1.0, 4.0), (80, 0.5, 3.0), (16, 0.15, 2.4)):
        module.mem_get_info = lambda total=total: (0, total * 10**9)
        module.get_per_process_memory_fraction = lambda part=part: part
        limits.clear()
        with pytest.raises(RuntimeError, match="shape"), little_memory("cuda"):
            limits.append(0)
            raise RuntimeError("shape mismatch")
        assert limits == [pytest.approx(most / total), 0, part, -1]


@ON_TORCH
@pytest.mark.parametrize("total", [40 * 10**9, 80 * 10**9, 141 * 10**9, 192 * 10**9])
@pytest.mark.parametrize("sharers", [2, 3])
def test_warm_ranks_fit_next_to_the_trainings_of_all_replicas_on_a_card(
    trains_on: str, total: int, sharers: int
) -> None:
    from replica.trainer.frameworks.torch.memory import warm_up_bytes
    from search_space.limits import rank_memory, usable_memory

    contexts = 10**9
    part = rank_memory(total, sharers) / total
    assert sharers * (part * total + warm_up_bytes(total, part) + contexts) <= total
    assert usable_memory(total) + warm_up_bytes(total, 1.0) + contexts <= total


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


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An accelerator that PyTorch lists, of which nothing can be asked but its kind."""
    import torch

    kind = SimpleNamespace(type="npu")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: kind)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda threads: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    for name in ("KERAS_TORCH_DEVICE", "TORCHINDUCTOR_COMPILE_THREADS"):
        monkeypatch.setenv(name, "")  # so that what is set meanwhile is taken back
        monkeypatch.delenv(name)
    return kind


@ON_TORCH
@pytest.mark.parametrize(("hip", "tries_all"), [(None, True), ("7.2.53211", False)])
def test_keras_is_given_the_accelerator_and_only_nvidias_library_tries_everything(
    trains_on: str, hip: str | None, tries_all: bool, accelerator: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from replica.trainer.frameworks.torch.framework import Torch

    monkeypatch.setattr(torch.version, "hip", hip)
    Torch().configure(2, 0)
    assert os.environ["KERAS_TORCH_DEVICE"] == "npu"
    assert torch.backends.cudnn.benchmark is tries_all


@ON_TORCH
def test_a_training_next_to_an_accelerator_is_refused(trains_on: str, accelerator: SimpleNamespace) -> None:
    from replica.trainer.frameworks.torch.framework import Torch

    set_up("float32", seed=1)
    model, request = build_model(SMALL), request_for("digits")
    with pytest.raises(TrialFailedError, match="'cpu', not on this node's 'npu'"):
        Torch().compile(model, build_optimiser(model, request), CLASSIFICATION, AloneCollective(), request)


@ON_TORCH
@pytest.mark.parametrize(
    ("capability", "built", "reason"),
    [
        ((7, 0), ["sm_75", "sm_80", "sm_90a", "compute_120"], "Tesla V100 .compute capability 7.0, .* from 7.5 on"),
        ((7, 5), ["sm_75", "sm_80"], None),
        ((12, 0), ["sm_75", "sm_80"], None),  # newer ones may run what was built for others
        ((7, 0), [], None),
    ],
)
def test_a_card_that_pytorch_was_not_built_for_is_unfit(
    trains_on: str, capability: tuple[int, int], built: list[str], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from replica.trainer.frameworks.torch.framework import check_kernels

    check_kernels()  # of a build for CPUs nothing can be asked
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla V100")
    if reason is None:
        check_kernels()
        return
    with pytest.raises(TrialFailedError, match=reason) as raised:
        check_kernels()
    assert raised.value.kind == "unfit"


@ON_TORCH
@pytest.mark.parametrize(
    ("architectures", "asked"), [([0, 90402], "1"), ([100306, 90010], "1"), ([0, 110000], "0"), ([0], None)]
)
def test_miopen_is_asked_for_innermost_channels_where_they_are_fast(
    trains_on: str, architectures: list[int], asked: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replica.trainer.frameworks import torch as package

    for number, architecture in enumerate(architectures):
        node = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        units = 64 if architecture else 0  # a CPU is a node, too
        (node / "properties").write_text(f"simd_count {units}\ngfx_target_version {architecture}\n")
    names = ("PYTORCH_MIOPEN_SUGGEST_NHWC", "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM")
    for name in names:
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setattr("aiperf.host.ROOT", tmp_path)
    reload(package)
    assert [os.environ.get(name) for name in names] == [asked, asked]


class Recorder:
    """A stream or an event of a device that does everything at once, and notes what it was told."""

    def __init__(self, name: str, told: list[str]) -> None:
        self._name = name
        self._told = told

    def __getattr__(self, word: str) -> Any:
        return lambda *others: self._told.append(" ".join([self._name, word, *(each._name for each in others)]))


@ON_TORCH
def test_batches_are_copied_ahead_into_memory_that_no_step_reads_any_more(
    trains_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from replica.trainer.frameworks.torch.transfer import BATCHES_AHEAD, Transfer

    told: list[str] = []
    events = itertools.count()
    empty = torch.empty
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Recorder("copies", told))
    monkeypatch.setattr(torch.cuda, "Event", lambda: Recorder(f"event {next(events)}", told))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Recorder("steps", told))
    monkeypatch.setattr(torch, "empty", lambda size, dtype, **where: empty(size, dtype=dtype))
    transfer, held = Transfer(SimpleNamespace(type="cuda")), []
    sizes = (4, 4, 4, 2, 8, 1)
    for number, size in enumerate(sizes):
        given = np.full((size, 3), number, np.uint8), np.full(size, number, np.float32)
        told.clear()
        with transfer(*given) as tensors:
            # Neither is overwritten before the copy from it, and the step with it, are over.
            copied, used = (f"event {2 * (number % BATCHES_AHEAD) + own}" for own in (0, 1))
            assert told[0] == f"{copied} synchronize"
            assert told[-3:] == [f"copies wait_event {used}", f"{copied} record", f"steps wait_event {copied}"]
            for mine, other in zip(tensors, given, strict=True):
                np.testing.assert_array_equal(mine.numpy(), other)
        assert told[-1] == f"{used} record"
        held.append(tensors)
    # Those of the last batches are all there yet.
    for number, tensors in list(enumerate(held))[-BATCHES_AHEAD:]:
        assert tensors[0].unique().tolist() == tensors[1].unique().tolist() == [number]
