"""One suite for every optimiser of parameter servers: each step is Keras's."""

from typing import Any

import keras
import numpy as np
import pytest

from replica.trainer.servers.optimisers import SERVER_OPTIMISERS
from replica.trainer.servers.shard import Recipe, Shard
from tests.support.trainings.mailboxes import shard_of

KERAS: dict[str, Any] = {
    "sgd": lambda momentum, decay: keras.optimizers.SGD(0.1, momentum=momentum, weight_decay=decay),
    "adam": lambda momentum, decay: keras.optimizers.Adam(0.1, beta_1=momentum, weight_decay=decay),
}
"""An optimiser that is missing here fails every test of the suite."""


@pytest.mark.parametrize("name", list(SERVER_OPTIMISERS))
@pytest.mark.parametrize("momentum", [0.0, 0.8, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_every_step_is_that_of_keras(name: str, momentum: float, decay: float) -> None:
    rng = np.random.default_rng(1)
    start = rng.standard_normal(50).astype(np.float32)
    variable = keras.Variable(start)
    theirs = KERAS[name](momentum, decay or None)
    theirs.build([variable])
    ours = shard_of(Recipe(optimiser=name, momentum=momentum, weight_decay=decay), start)
    for step in range(30):
        gradient = (rng.standard_normal(50) * 10.0 ** rng.integers(-3, 2, 50)).astype(np.float32)
        rate = 0.1 / (1 + step)
        theirs.learning_rate = rate
        theirs.apply([keras.ops.convert_to_tensor(gradient)], [variable])
        ours.apply(gradient, rate, step)
        expected = np.asarray(keras.ops.convert_to_numpy(variable))
        np.testing.assert_allclose(ours.values, expected, rtol=1e-6, atol=1e-6)
        # From the same values: errors of a step do not add up to those of another.
        ours.values[:] = expected


@pytest.mark.parametrize("name", list(SERVER_OPTIMISERS))
def test_a_restored_optimiser_goes_on_bit_by_bit(name: str) -> None:
    rng = np.random.default_rng(2)
    recipe = Recipe(optimiser=name, momentum=0.9)
    one = shard_of(recipe, rng.standard_normal(20).astype(np.float32))
    gradients = rng.standard_normal((6, 20)).astype(np.float32)
    for number, gradient in enumerate(gradients[:3]):
        one.apply(gradient.copy(), 0.1, number)
    kept = {name: vector.copy() for name, vector in one.state.items()}
    other = Shard(recipe, (kept, {name: np.empty_like(vector) for name, vector in kept.items()}), one.version)
    for number, gradient in enumerate(gradients[3:], 3):
        one.apply(gradient.copy(), 0.1, number)
        other.apply(gradient.copy(), 0.1, number)
    for mine, found in zip(one.state.values(), other.state.values(), strict=True):
        np.testing.assert_array_equal(mine, found)
    assert one.version == other.version == 6


@pytest.mark.parametrize("name", list(SERVER_OPTIMISERS))
def test_an_update_leaves_the_state_before_it_whole(name: str) -> None:
    shard = shard_of(Recipe(optimiser=name, momentum=0.9, weight_decay=0.01), np.ones(20, np.float32))
    shard.apply(np.ones(20, np.float32), 0.1, 0)
    state = shard.state
    before = {kept: vector.copy() for kept, vector in state.items()}
    shard.apply(np.full(20, 2, np.float32), 0.1, 1)
    for kept, vector in before.items():
        np.testing.assert_array_equal(state[kept], vector)
        assert not np.array_equal(shard.state[kept], vector), kept


@pytest.mark.parametrize("name", list(SERVER_OPTIMISERS))
def test_an_update_at_a_rate_of_zero_counts_and_changes_nothing(name: str) -> None:
    shard = shard_of(Recipe(optimiser=name, momentum=0.9, weight_decay=0.01), np.ones(20, np.float32))
    shard.apply(np.ones(20, np.float32), 0.1, 0)
    before = {kept: vector.copy() for kept, vector in shard.state.items()}
    assert shard.apply(np.zeros(20, np.float32), 0.0, 0) == 1
    assert shard.version == 2
    for kept, vector in before.items():
        np.testing.assert_array_equal(shard.state[kept], vector)
    shard.apply(np.ones(20, np.float32), 0.1, 2)
    assert not np.array_equal(shard.values, before["values"])
