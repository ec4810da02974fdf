"""Effects of replicas: planted ones are found, even replicas are not accused."""

import numpy as np
import pytest

from analysis.report.cluster.judgement import WRONGLY, Effects, effects_of, habitual

TRAININGS = 12


def drawn(seed: int, replicas: int, slower: dict[int, float], noise: float = 0.02) -> Effects:
    """Replicas that train networks of many sizes at a rate that saturates with the size."""
    rng = np.random.default_rng(seed)
    own = np.repeat(np.arange(replicas), TRAININGS)
    sizes, batches = rng.uniform(22, 25, len(own)), rng.choice([4.0, 5.0, 6.0], len(own))
    rates = -np.log1p(np.exp(22.0 - sizes)) + 0.05 * batches + rng.normal(0, noise, len(own))
    rates += np.array([np.log(1 / slower.get(replica, 1.0)) for replica in own.tolist()])
    return judged(own, rates, np.column_stack([sizes, batches, (sizes - 20) ** 2]))


def judged(replicas: np.ndarray, values: np.ndarray, columns: np.ndarray) -> Effects:
    found = effects_of(replicas, values, columns)
    assert found is not None
    return found


def slow(found: Effects) -> set[int]:
    return set(found.replicas[found.slow].tolist())


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_replica_of_eight_is_found_and_none_is_accused_in_an_even_run(seed: int) -> None:
    assert slow(drawn(seed, 8, {})) == set()
    assert slow(drawn(seed, 8, {seed % 8: 1.15})) == {seed % 8}


def test_one_in_a_hundred_of_512_that_is_slower_by_8_percent_is_found() -> None:
    planted = dict.fromkeys(range(7, 512, 100), 1.08)
    found = drawn(1, 512, planted)
    assert slow(found) == set(planted)
    half = found.reach * found.errors[found.slow]
    assert (np.abs(found.effects[found.slow] + np.log(1.08)) < 2 * half).all(), "the intervals are of this width"


def test_a_replica_is_not_slow_for_networks_that_are_slower_on_all() -> None:
    own = np.repeat(np.arange(8), TRAININGS)
    rng = np.random.default_rng(3)
    # Replica 0 has small networks alone, at a third of the others' rate as the fit has it.
    sizes = np.where(own == 0, rng.uniform(20, 22, len(own)), rng.uniform(20.5, 25, len(own)))
    rates = 0.4 * sizes + rng.normal(0, 0.01, len(own))
    assert slow(judged(own, rates, sizes[:, None])) == set()
    rates[own == 0] -= 0.2
    assert slow(judged(own, rates, sizes[:, None])) == {0}


def test_nothing_is_judged_with_too_few_trainings_for_what_differs_in_them() -> None:
    """A replica with another network than the rest is not slow: its network may cost the time."""
    values, sizes = np.log(np.array([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 0.5])), np.zeros((8, 2))
    sizes[7] = 3, 9
    assert effects_of(np.arange(8), values, sizes) is None
    assert slow(judged(np.arange(8), values, sizes[:, :0])) == {7}


def test_less_than_five_percent_is_not_slow() -> None:
    assert slow(drawn(1, 64, {5: 1.03}, noise=0.001)) == set()


def test_single_observations_are_compared_by_the_spread_of_all() -> None:
    values = np.log(np.array([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 0.5]))
    found = judged(np.arange(8), values, np.zeros((8, 1)))
    assert slow(found) == {7}
    assert found.effects[7] == pytest.approx(np.log(0.5), abs=0.02)
    assert (found.errors > 0).all()


@pytest.mark.parametrize("replicas", [4, 5, 6, 8, 16])
def test_few_even_replicas_are_accused_as_seldom_as_many(replicas: int) -> None:
    rng, runs = np.random.default_rng(replicas), 1000
    accused = 0
    for _ in range(runs):
        values = rng.normal(0, 0.3, replicas)
        accused += bool(slow(judged(np.arange(replicas), values, np.zeros((replicas, 0)))))
    assert accused <= 2 * WRONGLY * runs


def test_one_long_wait_is_no_habit_and_several_of_one_replica_are() -> None:
    replicas = np.repeat(np.arange(512), 3)
    values = -np.log1p(np.random.default_rng(5).uniform(0, 0.005, len(replicas)))
    values[::150] = -0.3  # a long wait of a replica now and then, also of one that has only this wait
    kept = ~((replicas == replicas[300]) & (np.arange(len(replicas)) != 300))
    values[replicas == 77] = -0.3
    replicas, values = replicas[kept], values[kept]
    found = judged(replicas, values, np.zeros((len(replicas), 0)))
    assert slow(found) == {77, 100}, "of one wait the fit cannot know that it is rare"
    marks = habitual(found, replicas, values)
    assert set(found.replicas[found.slow & marks].tolist()) == {77}
