"""The Bayesian strategy beyond its contract."""

import random

from aiperf.network.architecture import Architecture
from replica.search.demo.architectures import SearchDemo, random_history
from replica.search.observations import Observation, Observations
from replica.search.partitions import ALL
from replica.search.strategies.bayesian import BayesianStrategy
from search_space.limits import growth_limits
from search_space.resnet import resnet

INITIAL = resnet(50, 32, 10)


LIMITS = growth_limits(INITIAL, 4.0, None, 64, 4)


POOL = random_history(INITIAL, LIMITS, 60, random.Random(1))


def observations(values: list[float], architectures: list[Architecture] | None = None) -> tuple[Observation, ...]:
    return tuple(map(Observation, architectures or POOL, values))


def propose(known: Observations, seed: int = 0) -> str:
    return BayesianStrategy(INITIAL, LIMITS).propose(known, random.Random(seed), ALL).architecture.hash


def test_accuracies_change_the_proposals() -> None:
    values = [random.Random(n).random() for n in range(30)]
    rising, falling = Observations(observations(values)), Observations(observations([1 - value for value in values]))
    assert [propose(rising, seed) for seed in range(3)] != [propose(falling, seed) for seed in range(3)]


def test_proposals_of_a_short_history_are_those_of_earlier_versions() -> None:
    found = [step.architecture for step in SearchDemo("peak", history=30, seed=1).steps(2)]
    assert found == ["f79cd916354e6168", "3953a1322d85acf5"]


def test_the_search_beats_random_morphing() -> None:
    def best(strategy: str, seed: int) -> float:
        return list(SearchDemo("depth", strategy, seed=seed).steps(10))[-1].best

    gains = [best("bayesian", seed) - best("random", seed) for seed in range(3)]
    assert sorted(gains)[1] > 0.02
