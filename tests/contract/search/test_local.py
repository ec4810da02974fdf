"""The surrogate of long histories."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from replica.search import surrogate
from replica.search.demo.architectures import evaluate, random_history
from replica.search.distance import Columns, DistanceTable, Floats
from replica.search.observations import Observation, Observations
from replica.search.outlines import Known, outlined, whole
from replica.search.partitions import Partition
from replica.search.strategies import bayesian
from replica.search.strategies.bayesian import BayesianStrategy
from replica.search.strategies.contract import partition_key
from replica.search.surrogate import LANDMARKS, LocalSurrogate, Surrogate
from search_space.limits import growth_limits
from search_space.resnet import resnet
from search_space.sampling import random_morph

INITIAL = resnet(50, 32, 10)
LIMITS = growth_limits(INITIAL, 4.0, None, 64, 4)
POOL = random_history(INITIAL, LIMITS, 300, random.Random(1))
WHOLE = {architecture.hash: architecture for architecture in POOL}
OUTLINES = [outlined(architecture, WHOLE.__getitem__) for architecture in POOL]
VALUES = [evaluate("peak", architecture, INITIAL) for architecture in POOL]
HISTORY = tuple(map(Observation, OUTLINES[:200], VALUES))
UNSEEN = OUTLINES[200:]


def local(observations: Sequence[Observation]) -> LocalSurrogate:
    table = DistanceTable()
    return LocalSurrogate(observations, table, Columns(table))


@pytest.mark.parametrize("known", [1, 2, 60, 200])
def test_a_process_of_all_observations_is_the_exact_one_to_the_last_bit(known: int) -> None:
    observations = (*HISTORY[:known], *HISTORY[: known // 2])
    exact = Surrogate(observations, DistanceTable())
    assert np.array_equal(local(observations).upper_confidence_bounds(UNSEEN), exact.upper_confidence_bounds(UNSEEN))


def test_it_predicts_near_the_best_as_the_exact_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "NEAREST", 100)
    best = sorted(HISTORY, key=lambda observation: -observation.accuracy)[: surrogate.BEST]
    rng = random.Random(1)
    children = [random_morph(whole(parent.architecture), rng)[1] for parent in best for _ in range(8)]
    exact, exact_deviation = Surrogate(HISTORY, DistanceTable()).predict(children)
    mean, deviation = local(HISTORY).predict(children)
    spread = np.std(VALUES[:200])
    assert np.abs(mean - exact).mean() < 0.2 * spread
    assert np.abs(deviation - exact_deviation).mean() < 0.2 * spread


@pytest.mark.parametrize("objective", ["depth", "mixture"])
def test_landmarks_of_its_own_tell_neighbours_apart(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "NEAREST", 100)
    values = [evaluate(objective, architecture, INITIAL) for architecture in POOL]
    known = tuple(map(Observation, OUTLINES, values))
    best = sorted(known, key=lambda observation: -observation.accuracy)[: surrogate.BEST]
    rng = random.Random(1)
    children = [random_morph(whole(parent.architecture), rng)[1] for parent in best for _ in range(20)]
    reached = np.array([evaluate(objective, child, INITIAL) for child in children])
    exact, own = (
        np.abs(model.predict(children)[0] - reached).mean()
        for model in (
            Surrogate(known, DistanceTable()),
            local(known),
        )
    )
    assert own < exact, "landmarks of the whole history are far from all of them"


def test_its_deviation_does_not_collapse_away_from_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "NEAREST", 100)
    best = max(HISTORY, key=lambda observation: observation.accuracy)
    _, deviation = local(HISTORY).predict([resnet(101, 32, 10), best.architecture])
    assert deviation[0] > 0.9 * np.std(VALUES[:200])
    assert deviation[0] > deviation[1]


def test_a_model_that_grew_is_the_one_that_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "NEAREST", 50)
    table = DistanceTable()
    columns = Columns(table)
    for number in (60, 130, 200):
        grown = LocalSurrogate(HISTORY[:number], table, columns)
    assert np.array_equal(grown.upper_confidence_bounds(UNSEEN), local(HISTORY).upper_confidence_bounds(UNSEEN))
    earlier = LocalSurrogate(HISTORY[:60], table, columns).upper_confidence_bounds(UNSEEN)
    assert np.array_equal(earlier, local(HISTORY[:60]).upper_confidence_bounds(UNSEEN))


def test_duplicates_and_equal_accuracies_do_no_harm() -> None:
    same = tuple(Observation(architecture, 0.5) for architecture in [INITIAL] * 30 + POOL[1:4])
    bounds = local(same).upper_confidence_bounds([INITIAL, POOL[5]])
    assert np.all(np.isfinite(bounds))
    assert bounds[1] > bounds[0], "the unknown has the higher bound"


def test_a_long_history_has_a_local_process_and_a_short_one_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def noted(observations: Sequence[Observation], table: DistanceTable, columns: Columns) -> LocalSurrogate:
        made.append(len(observations))
        return LocalSurrogate(observations, table, columns)

    monkeypatch.setattr(bayesian, "LocalSurrogate", noted)
    strategy = BayesianStrategy(INITIAL, LIMITS, exact=100)
    strategy.propose(Observations(HISTORY[:100]), random.Random(1))
    assert made == []
    strategy.propose(Observations(HISTORY[:90], pending=tuple(OUTLINES[90:101])), random.Random(1))
    assert made == [101]
    assert bayesian.EXACT == 500


def test_proposals_of_a_long_history_keep_the_rules_and_follow_the_accuracies() -> None:
    falling = tuple(Observation(o.architecture, 1 - o.accuracy) for o in HISTORY)
    found = []
    for known in (HISTORY, falling):
        grown, fresh = (BayesianStrategy(INITIAL, LIMITS, exact=100) for _ in range(2))
        grown.propose(Observations(known[:150]), random.Random(1), Partition(1, 4))
        proposal = grown.propose(Observations(known), random.Random(2), Partition(1, 4))
        assert proposal == fresh.propose(Observations(known), random.Random(2), Partition(1, 4)), "as a replay finds it"
        assert proposal.architecture.hash not in WHOLE
        assert Partition(1, 4).holds(partition_key(proposal.architecture))
        found.append(proposal.architecture.hash)
    assert found[0] != found[1]


def test_a_further_result_costs_its_distances_to_the_landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    table = DistanceTable()
    columns = Columns(table)
    LocalSurrogate(HISTORY[:-1], table, columns)
    measured: list[int] = []
    measure = DistanceTable.measure

    def counted(self: DistanceTable, one: Known, others: Sequence[Known]) -> Floats:
        measured.append(len(others))
        return measure(self, one, others)

    monkeypatch.setattr("replica.search.surrogate.NEAREST", 100)
    LocalSurrogate(HISTORY[:-1], table, columns)
    monkeypatch.setattr(DistanceTable, "measure", counted)
    LocalSurrogate(HISTORY, table, columns)
    assert measured == [1] * LANDMARKS


def test_an_outline_is_the_architecture_to_the_distance() -> None:
    one, others = POOL[3], POOL[:40]
    assert np.array_equal(DistanceTable().distances(one, others), DistanceTable().distances(OUTLINES[3], OUTLINES[:40]))
    assert whole(OUTLINES[5]) is POOL[5]


def test_distances_are_forgotten_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    table = DistanceTable()
    before = table.distances(POOL[0], POOL[:20])
    table.trim()
    assert len(vars(table)["_known"]) == 39
    monkeypatch.setattr("replica.search.distance.MOST_PAIRS", 20)
    table.trim()
    assert vars(table)["_known"] == {}
    assert np.array_equal(table.distances(POOL[0], POOL[:20]), before)
