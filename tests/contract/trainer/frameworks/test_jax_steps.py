"""JAX's steps: batches that are filled up, and values that Keras's variables get only when read."""

import os
from typing import Any

import numpy as np
import pytest

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import BatchNorm, Conv, Dense, Flatten, Input, ReLU, Softmax
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.model.builder import build_model, set_up
from replica.trainer.model.optimisers import build_optimiser
from tests.support.trainings.requests import request_for
from workloads.classification import CLASSIFICATION

PLACE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}

ON_JAX = pytest.mark.parametrize("trains_on", ["jax"])

SMALL = Architecture(
    (
        Node("in", Input(6, 6, 3)),
        Node("conv", Conv(4), ("in",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("relu", ReLU(), ("bn",)),
        Node("flat", Flatten(), ("relu",)),
        Node("hidden", Dense(5), ("flat",)),
        Node("hidden_bn", BatchNorm(), ("hidden",)),
        Node("fc", Dense(3), ("hidden_bn",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)


def made() -> tuple[Any, Any]:
    from replica.trainer.frameworks.jax.steps import JaxSteps

    set_up("float32", seed=1)
    model, request = build_model(SMALL), request_for("digits")
    return JaxSteps(model, build_optimiser(model, request), CLASSIFICATION, AloneCollective(), request), model


def batch(images: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(images, 6, 6, 3)).astype(np.float32), np.eye(3, dtype=np.float32)[np.arange(images) % 3]


@ON_JAX
@pytest.mark.parametrize("images", [5, 1, 0])
def test_images_that_fill_a_batch_up_count_in_nothing(trains_on: str, images: int) -> None:
    import jax

    steps, _ = made()
    gradients_of = jax.jit(steps._own_gradients)
    trained, others, _ = steps._raw.begin_step()
    scale = np.float32(1)
    mask = (np.arange(8) < images).astype(np.float32)
    full = [np.where(mask.reshape(-1, *[1] * (each.ndim - 1)) > 0, each, np.float32(9)) for each in batch(8)]
    sums, gradients, after = gradients_of(trained, others, scale, *full, mask)
    if images:
        wanted_sums, wanted, wanted_after = gradients_of(trained, others, scale, *(e[:images] for e in batch(8)))
    else:
        wanted_sums, wanted, wanted_after = np.zeros(2), [np.zeros_like(each) for each in gradients], others
    np.testing.assert_allclose(sums, wanted_sums, rtol=1e-5)
    for mine, other in zip([*gradients, *after], [*wanted, *wanted_after], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)


@ON_JAX
def test_variables_have_their_values_once_results_are_read_and_may_be_set_then(trains_on: str) -> None:
    steps, model = made()
    weights = model.get_weights()
    first = steps.read([steps.train(*batch(4)) for _ in range(2)])
    after = model.get_weights()
    assert any((mine != other).any() for mine, other in zip(weights, after, strict=True))
    for mine, other in zip(steps.weights(), after, strict=True):
        np.testing.assert_array_equal(mine, other)
    again = steps.read([steps.train(*batch(4))])
    assert again[0, 0] != first[0, 0]
    model.set_weights(weights)
    assert steps.read([steps.train(*batch(4))])[0, 0] == first[0, 0], "trained from what was set"
    steps.train(*batch(4))
    assert all(np.isfinite(each).all() for each in steps.state()), "before anything is read, too"
    steps.evaluate(*batch(3))


@ON_JAX
@pytest.mark.parametrize("step", ["train", "evaluate"])
def test_the_host_is_never_more_than_a_few_steps_ahead(
    trains_on: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    from replica.trainer.frameworks.jax.steps import STEPS_AHEAD

    steps, _ = made()
    waited: list[Any] = []
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    results = [getattr(steps, step)(*batch(4)) for _ in range(5)]
    assert [*map(id, waited)] == [*map(id, results[: 5 - STEPS_AHEAD])]


@ON_JAX
def test_ranks_meet_without_the_proxy_of_the_site(trains_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By gRPC, which would ask a proxy for the loopback, too."""
    import jax

    from replica.trainer.frameworks.jax.collective import JaxCollective

    for name, value in {**PLACE, "http_proxy": "http://127.0.0.1:9", "no_proxy": "example.org"}.items():
        monkeypatch.setenv(name, value)
    seen: list[str] = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: seen.extend(os.environ))
    JaxCollective(1)
    assert "RANK" in seen
    assert [name for name in seen if name.lower().endswith("_proxy")] == []


@ON_JAX
def test_a_rank_leaves_when_rank_0_has_written_everything(trains_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 may wait for storage longer than JAX's service waits for it."""
    import jax

    from replica.trainer.frameworks.jax.collective import JaxCollective

    for name, value in PLACE.items():
        monkeypatch.setenv(name, value)
    done: list[str] = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: None)
    monkeypatch.setattr(jax.distributed, "shutdown", lambda: done.append("left"))
    collective = JaxCollective(1)
    collective.rank, collective.size = 1, 2

    def from_rank_0(key: str) -> bytes:
        done.append("heard from rank 0")
        return b""

    monkeypatch.setattr(collective, "get", from_rank_0)
    monkeypatch.setattr(collective, "remove", lambda key: None)
    collective.close()
    assert done == ["heard from rank 0", "left"]


@ON_JAX
def test_a_rank_takes_its_part_of_a_cards_memory_unless_the_user_has_set_one(
    trains_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replica.trainer.frameworks.jax import MEMORY, MOST_MEMORY
    from replica.trainer.frameworks.jax.framework import Jax

    monkeypatch.setenv("NPROC", "1")
    for before, part, after in ((MOST_MEMORY, 1.0, "0.95"), (MOST_MEMORY, 0.5, "0.475"), ("0.3", 0.5, "0.3")):
        monkeypatch.setenv(MEMORY, before)
        Jax().configure(1, 0, part)
        assert os.environ[MEMORY] == after


@ON_JAX
def test_each_of_several_ranks_tries_all_algorithms_unless_the_user_has_chosen(trains_on: str) -> None:
    from replica.trainer.frameworks.jax.collective import tune_alone

    flag = "--xla_gpu_shard_autotuning="
    for before, after in (
        ({}, f"{flag}false"),
        ({"XLA_FLAGS": "--xla_a=1"}, f"--xla_a=1 {flag}false"),
        ({"XLA_FLAGS": f"{flag}true"}, f"{flag}true"),
    ):
        environment = dict[str, str](before)
        tune_alone(environment)
        assert environment == {"XLA_FLAGS": after}
