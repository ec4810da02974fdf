"""Small trainings on JAX for processes of their own (`call_apart`)."""

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax import monitoring
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import BatchNorm, Conv, Dense, Flatten, Input, ReLU, Softmax
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.collectives.contract import Collective
from replica.trainer.collectives.host import StoreCollective
from replica.trainer.frameworks.jax.collective import ALIKE, AXIS, DIFFERENT, JaxCollective
from replica.trainer.frameworks.jax.steps import JaxSteps
from replica.trainer.model.builder import build_model, set_up
from replica.trainer.model.optimisers import build_optimiser
from tests.support.trainings.requests import request_for
from workloads.classification import CLASSIFICATION

SIDE, CLASSES, BATCH = 6, 3, 24

Batch = tuple[Any, Any]


def network(normalised: bool = True, hidden: int = 1) -> Architecture:
    """A convolution and some hidden layers."""
    before, nodes = "conv", [Node("in", Input(SIDE, SIDE, 3)), Node("conv", Conv(4, bias=True), ("in",))]
    if normalised:
        nodes.append(Node("bn", BatchNorm(), ("conv",)))
        before = "bn"
    nodes += [Node("relu", ReLU(), (before,)), Node("flat", Flatten(), ("relu",))]
    before = "flat"
    for number in range(hidden):
        dense, norm = f"hidden{number}", f"hidden{number}_bn"
        nodes.append(Node(dense, Dense(5), (before,)))
        if normalised:
            nodes.append(Node(norm, BatchNorm(), (dense,)))
        before = nodes[-1].name
    return Architecture((*nodes, Node("fc", Dense(CLASSES), (before,)), Node("softmax", Softmax(), ("fc",))))


def batch(images: int, seed: int = 5) -> Batch:
    rng = np.random.default_rng(seed)
    labels = np.eye(CLASSES, dtype=np.float32)[rng.integers(CLASSES, size=images)]
    return rng.normal(size=(images, SIDE, SIDE, 3)).astype(np.float32), labels


def made(architecture: Architecture, collective: Collective, batch_size: int = BATCH) -> JaxSteps:
    set_up("float32", seed=1)
    model, request = build_model(architecture), request_for("digits", batch_size=batch_size)
    return JaxSteps(model, build_optimiser(model, request), CLASSIFICATION, collective, request)


def trained(steps: JaxSteps, sizes: Sequence[int]) -> dict[str, Any]:
    """Rows and weights of a step for each batch; the devices that held weights after the last."""
    results = []
    for number, size in enumerate(sizes):
        steps.set_learning_rate(0.05 / (1 + number))
        results.append(steps.train(*batch(size, seed=number)))
    rows, weights = steps.read(results), steps.weights()
    held = steps._raw._values
    assert held is not None
    return {
        "rows": rows.tolist(),
        "weights": [np.asarray(each).ravel().tolist() for each in weights],
        "devices": len(held[0][0].sharding.device_set),
    }


class DevicesAsRanks(JaxCollective):
    """A rank for each device of this process, which passes the parts of all of them at once.

    Ranks are processes otherwise: the program that they run together is the same.
    """

    def __init__(self) -> None:
        StoreCollective.__init__(self, 0, len(jax.devices()), 0)

    @cached_property
    def _mesh(self) -> Mesh:
        return Mesh(np.array(jax.devices()), (AXIS,))

    def _put(self, spec: PartitionSpec, values: Any) -> Any:
        return jax.device_put(values, NamedSharding(self._mesh, spec))

    def rows(self, own: Any) -> Any:
        return self._put(DIFFERENT, jnp.broadcast_to(own, (self.size, *np.shape(own))))

    def parts(self, own: Any) -> Any:
        return self._put(DIFFERENT, own)

    def shared(self, own: Any) -> Any:
        return self._put(ALIKE, own)


SIZES = (BATCH, BATCH, 13)
"""Sizes of batches, the last of which fills only half of the ranks."""


def on_devices() -> dict[str, Any]:
    """The same training on one device, and on all as ranks do it.

    Without normalisation, whose moments are those of a rank's own images.
    """
    plain = network(normalised=False)
    return {
        "alone": trained(made(plain, AloneCollective()), SIZES),
        "ranks": trained(made(plain, DevicesAsRanks()), SIZES),
    }


CONVERSIONS = (
    (jax, "device_put"),
    (jax, "make_array_from_single_device_arrays"),
    (jax, "make_array_from_process_local_data"),
    (jax, "make_array_from_callback"),
    (jnp, "asarray"),
    (jnp, "array"),
    (keras.Variable, "assign"),
)
"""Calls by which the host makes arrays, or sets a variable to one.

The trainer and Keras look them up at each call.
"""


def _counted(calls: Counter[str], owner: Any, name: str) -> AbstractContextManager[Any]:
    own = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return own(*arguments, **options)

    return patch.object(owner, name, call)


def conversions_of_ranks() -> list[dict[str, Any]]:
    """Variables of two trainings by two ranks, and what the host did in two steps of each."""
    ranks = JaxCollective(2)
    found = []
    for hidden in (1, 3):
        steps = made(network(hidden=hidden), ranks, batch_size=4)
        steps.train(*batch(4))
        calls: Counter[str] = Counter()
        with ExitStack() as counting:
            for each in CONVERSIONS:
                counting.enter_context(_counted(calls, *each))
            for number in range(2):
                steps.set_learning_rate(0.01 * (1 + number))
                steps.train(*batch(4))
        found.append({"variables": len(steps._raw._held()), "calls": calls})
    ranks.close()
    return found


def with_kept_programs() -> dict[str, Any]:
    """A training that finds or keeps its programs, and how many of them it did."""
    events: Counter[str] = Counter()
    monitoring.register_event_listener(lambda event, **_: events.update([event.rpartition("/")[2]]))
    steps = made(network(), AloneCollective())
    before = events.copy()
    # JAX keeps what took a second to compile, as programs of trials do: this one takes as long by
    # a clock that is two seconds on at each look.
    with patch("time.monotonic", side_effect=itertools.count(step=2.0)):
        steps.prepare(batch, (BATCH,))
    compiled = events - before
    return {**trained(steps, (BATCH, BATCH)), "found": compiled["cache_hits"], "missed": compiled["cache_misses"]}
