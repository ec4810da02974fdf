"""PyTorch's compiled steps, on CPUs and wherever there is an accelerator: regions and graphs."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import (
    Add,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    GlobalAveragePool,
    Input,
    MaxPool,
    ReLU,
    Softmax,
    ZeroPad,
)
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.model.builder import build_model, set_up
from replica.trainer.model.optimisers import build_optimiser
from tests.support.trainings.requests import request_for
from workloads.classification import CLASSIFICATION

# Its compiler looks at, and uses, what PyTorch itself warns of.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated:DeprecationWarning"),
]

ON_TORCH = pytest.mark.parametrize("trains_on", ["torch"])

BATCH, SIDE, CLASSES = 4, 8, 3


def conv(name: str, source: str, filters: int = 8, kernel: int = 3) -> list[Node]:
    return [
        Node(name, Conv(filters, (kernel, kernel)), (source,)),
        Node(f"{name}_bn", BatchNorm(), (name,)),
    ]


def block(name: str, source: str, side: str) -> list[Node]:
    return [
        *conv(f"{name}a", source),
        Node(f"{name}a_relu", ReLU(), (f"{name}a_bn",)),
        *conv(f"{name}b", f"{name}a_relu"),
        Node(f"{name}_sum", Add(), (f"{name}b_bn", side)),
        Node(name, ReLU(), (f"{name}_sum",)),
    ]


RESIDUAL = Architecture(
    (
        Node("in", Input(SIDE, SIDE, 3)),
        *conv("stem", "in"),
        Node("stem_relu", ReLU(), ("stem_bn",)),
        Node("pad", ZeroPad((1, 1), (1, 1)), ("stem_relu",)),
        Node("pool", MaxPool((3, 3), (2, 2), "valid"), ("pad",)),
        *conv("side", "pool", kernel=1),
        *block("one", "pool", "side_bn"),
        *block("two", "one", "one"),
        *block("three", "two", "two"),
        Node("gap", GlobalAveragePool(), ("three",)),
        Node("drop", Dropout(0.3), ("gap",)),
        Node("fc", Dense(CLASSES), ("drop",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)
PROGRAMS = 3
"""Different regions: the stem with its pool, a normalisation with ReLU, and sums of two and of one
normalisation; the sums of the second and third block are alike."""


def steps_of(compiles: str, precision: str = "float32", **changes: Any) -> Any:
    from replica.trainer.frameworks.torch.steps import TorchSteps

    set_up(precision, seed=1)
    model, request = build_model(RESIDUAL), request_for("digits", batch_size=BATCH, precision=precision, **changes)
    return TorchSteps(
        model, build_optimiser(model, request), CLASSIFICATION, AloneCollective(), _with(request, compiles)
    )


def _with(request: Any, compiles: str) -> Any:
    from msgspec.structs import replace

    return replace(request, compile=compiles)


def batch(number: int, images: int = BATCH) -> tuple[Any, Any]:
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (images, SIDE, SIDE, 3), np.uint8)
    return pixels, np.eye(CLASSES, dtype=np.float32)[rng.integers(CLASSES, size=images)]


def trained(steps: Any, numbers: range, tail: int = BATCH - 1) -> list[Any]:
    """Train on batches, the last one smaller, at rates that differ."""
    found = []
    for number in numbers:
        steps.set_learning_rate(0.05 / (1 + number))
        size = tail if number == numbers[-1] else BATCH
        found.append(steps.read([steps.train(*batch(number, size))])[0])
    return found


@ON_TORCH
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_replayed_step_follows_rate_masks_and_state_as_one_without_a_graph(
    trains_on: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replica.trainer.frameworks.torch import descent
    from replica.trainer.frameworks.torch import steps as module
    from replica.trainer.frameworks.torch.step_graph import STEPS_BEFORE, Capture
    from tests.support.trainings.replayed import ReplayedGraph

    monkeypatch.setattr(descent, "RATE_OF_HOST_ON", ())
    plain = steps_of("off", precision)
    changed: list[Any] = []
    if plain._device.type == "cpu":
        monkeypatch.setitem(module.GRAPHS, "cpu", partial(ReplayedGraph, changed=changed))
    graphed = steps_of("on", precision)
    graphed._network.fusion.images = 0  # regions are another test's
    changed += [each.value for each in graphed._variables]
    expected, found = trained(plain, range(8)), trained(graphed, range(8))
    assert isinstance(graphed._do, Capture) and graphed._do.failure is None and graphed._do._graph is not None
    exact = plain._device.type == "cpu"
    same = np.testing.assert_array_equal if exact else partial(np.testing.assert_allclose, rtol=2e-2)
    same(found, expected)
    # Another state, set by the host, is what the next replay begins with; so are other masks.
    state = plain.state()
    trained(plain, range(8, 12))
    trained(graphed, range(20, 22))
    for each in (plain, graphed):
        each.restore(state)
    same(trained(graphed, range(30, 34)), trained(plain, range(30, 34)))
    for own, other in zip(graphed.state(), plain.state(), strict=True):
        same(own, other) if exact else np.testing.assert_allclose(own, other, rtol=0.1, atol=0.05)
    assert STEPS_BEFORE < 7, "some of these were replayed"


@ON_TORCH
def test_a_step_that_cannot_be_captured_is_done_without_a_graph(
    trains_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replica.trainer.frameworks.torch import steps as module

    class Refusing:
        """A generator that a failed capture has left as if a graph drew from it."""

        def __init__(self, own: Any) -> None:
            self.device = own.device

        def manual_seed(self, seed: int) -> None:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")

    def refuses(*arguments: Any) -> Any:
        for each in graphed._network.draws:
            each.generator = Refusing(each.generator)
        raise RuntimeError("operation not permitted when stream is capturing")

    plain = steps_of("off")
    monkeypatch.setitem(module.GRAPHS, plain._device.type, refuses)
    graphed = steps_of("on")
    graphed._network.fusion.images = 0
    np.testing.assert_allclose(trained(graphed, range(6)), trained(plain, range(6)), rtol=1e-3)
    assert graphed._network.draws, "of a dropout"
    assert graphed._do.failure == "RuntimeError: operation not permitted when stream is capturing"
    assert "not permitted" in graphed.compiled()


@ON_TORCH
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_regions_are_compiled_once_a_signature_and_compute_the_same(
    trains_on: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from torch._dynamo.utils import counters

    from replica.trainer.frameworks.torch import regions

    plain = steps_of("off", precision)
    if plain._device.type == "cpu":
        # Traced, differentiated and divided as for the compiler, whose C++ takes a minute.
        monkeypatch.setattr(regions, "BACKEND", "aot_eager")
    regions.fused.cache_clear()
    torch._dynamo.reset()
    counters.clear()
    compiled = steps_of("on", precision)
    compiled.prepare(lambda count: batch(0, count), (BATCH, 0))
    assert compiled._network.fusion.failure is None
    programs = {region.program for region in _regions_of(compiled)}
    assert len(programs) == PROGRAMS + 1
    graphs = counters["stats"]["unique_graphs"]
    assert graphs == 2 * len(programs), "each once for training and once for evaluation"
    bound = 1e-4 if precision == "float32" else 0.06
    np.testing.assert_allclose(trained(compiled, range(6)), trained(plain, range(6)), rtol=bound)
    ours, theirs = (steps.read([steps.evaluate(*batch(9))])[0] for steps in (compiled, plain))
    np.testing.assert_allclose(ours, theirs, rtol=bound, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == graphs, "nothing was compiled again"
    assert not counters["graph_break"]
    assert compiled.compiled().startswith("regions")


def _regions_of(steps: Any) -> list[Any]:
    from replica.trainer.frameworks.torch.regions import Region

    return [step.compute for step in steps._network._steps if isinstance(step.compute, Region)]


@ON_TORCH
def test_a_network_with_many_widths_is_compiled_in_all_of_them(trains_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch._dynamo.utils import counters

    from replica.trainer.frameworks.torch import regions

    monkeypatch.setattr(regions, "BACKEND", "eager")
    regions.fused.cache_clear()
    torch._dynamo.reset()
    counters.clear()
    region = regions.fused(regions.Program(1, ((regions.Rectify(True), (0,)),)), True)
    widths = range(8, 8 * 13, 8)
    for width in widths:
        (output,) = region(torch.full((2, width, 4, 4), -1.0))
        assert not output.any()
    assert counters["stats"]["unique_graphs"] == len(widths)
    regions.fused.cache_clear()  # what a test with another compiler must not find


@ON_TORCH
def test_a_compiler_that_fails_costs_nothing_but_speed(trains_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from replica.trainer.frameworks.torch import regions

    def broken(*arguments: Any) -> Any:
        raise ValueError("no such compiler")

    monkeypatch.setattr(regions, "fused", lambda program, training: broken)
    compiled, plain = steps_of("on"), steps_of("off")
    np.testing.assert_allclose(trained(compiled, range(6)), trained(plain, range(6)), rtol=1e-3)
    assert compiled._network.fusion.failure == "ValueError: no such compiler"
    assert "no such compiler" in compiled.compiled()


@ON_TORCH
def test_the_reason_is_that_of_a_compiler_in_another_process(trains_on: str) -> None:
    from torch._inductor.compile_worker.subproc_pool import SubprocException

    from replica.trainer.frameworks.torch.regions import short

    text = "Traceback (most recent call last):\n  File ...\nRuntimeError: Failed to find C compiler."
    assert short(SubprocException(text)) == "RuntimeError: Failed to find C compiler."


@ON_TORCH
def test_two_long_reasons_fit_into_a_record(trains_on: str) -> None:
    import msgspec

    from aiperf.facts import Name
    from replica.trainer.frameworks.torch.regions import short
    from replica.trainer.frameworks.torch.step_graph import Capture, CudaGraph

    steps = steps_of("on")
    steps._network.fusion.failure = short(RuntimeError("no such compiler\n" * 20))
    steps._do = Capture(steps._step, [], CudaGraph, BATCH)
    steps._do.failure = short(ValueError("x" * 300))
    said = steps.compiled()
    assert "RuntimeError: no such compiler; no such" in said and "ValueError: xxx" in said
    assert msgspec.convert(said, Name) == said


@ON_TORCH
def test_a_backward_pass_that_cannot_be_compiled_costs_nothing_but_speed(
    trains_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    from replica.trainer.frameworks.torch import regions

    def forward(graph: Any, inputs: Any) -> Any:
        return make_boxed_func(graph.forward)

    def broken(graph: Any, inputs: Any) -> Any:
        raise ValueError("no such instruction")

    monkeypatch.setattr(regions, "BACKEND", aot_autograd(fw_compiler=forward, bw_compiler=broken))
    regions.fused.cache_clear()
    torch._dynamo.reset()
    compiled, plain = steps_of("on"), steps_of("off")
    compiled.prepare(lambda count: batch(0, count), (BATCH, 0))
    np.testing.assert_allclose(trained(compiled, range(6)), trained(plain, range(6)), rtol=1e-3)
    assert compiled.compiled().startswith("no regions (ValueError: no such instruction)")
    regions.fused.cache_clear()  # what a test with another compiler must not find


@ON_TORCH
def test_the_compiler_computes_a_sum_of_normalisations_as_pytorch_does(trains_on: str) -> None:
    import torch

    from replica.trainer.frameworks.torch.regions import Mode, Normalise, Program, Rectify, Sum, fused

    parts = ((Normalise(1e-5), (0,)), (Normalise(1e-5), (1,)), (Sum(0), (2, 3)), (Rectify(True), (4,)))
    program, draws = Program(2, parts), torch.Generator().manual_seed(5)
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    images = [torch.randn(4, 6, 6, 8, generator=draws).to(device).permute(0, 3, 1, 2) for _ in range(2)]
    own = [torch.randn(8, generator=draws).to(device) for _ in range(4)]
    moving = [torch.zeros(8, device=device), torch.ones(8, device=device)]
    results, kept = [], set()

    def keep(tensor: Any) -> Any:
        kept.add(tensor.dtype)
        return tensor

    for function, kind in ((partial(program, Mode(True, False)), "eager"), (fused(program, True), "compiled")):
        given = [each.detach().clone().requires_grad_() for each in (*images, *own)]
        tensors = [*given[:2], *given[2:4], *moving, *given[4:], *moving]
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output, *moments = function(tensors) if kind == "eager" else function(*tensors)
        gradients = torch.autograd.grad((output * output).sum(), given)
        results.append([each.detach().cpu().numpy() for each in (output, *moments, *gradients)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-3)
    assert device.type != "cpu" or kept == {torch.float32}, "of a ReLU its output, and no mask"
