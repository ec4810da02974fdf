"""One suite for every search strategy: proposals are new, in bounds, and repeatable."""

import random

import pytest

from aiperf.config.settings import load_config
from aiperf.errors import TrialFailedError, UsageError
from aiperf.network.architecture import Architecture
from replica.search.demo.architectures import random_history
from replica.search.observations import Observation, Observations
from replica.search.outlines import whole
from replica.search.partitions import ALL, Partition
from replica.search.strategies import STRATEGIES
from replica.search.strategies.contract import Proposal, SearchStrategy, partition_key
from search_space.limits import growth_limits
from search_space.morphisms import apply_all
from search_space.resnet import resnet

INITIAL = resnet(50, 32, 10)
LIMITS = growth_limits(INITIAL, 4.0, None, 64, 4)
POOL = random_history(INITIAL, LIMITS, 40, random.Random(1))


@pytest.fixture(params=list(STRATEGIES))
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def strategy(name: str) -> SearchStrategy:
    return make(name)


def make(name: str) -> SearchStrategy:
    return STRATEGIES.load(name)(INITIAL, LIMITS)


def observed(*accuracies: float, pending: tuple[Architecture, ...] = (), failed: tuple[str, ...] = ()) -> Observations:
    return Observations(tuple(map(Observation, POOL, accuracies)), pending, failed)


HISTORIES = {
    "nothing": Observations(),
    "the initial architecture failed": Observations(failed=(INITIAL.hash,)),
    "all still running": Observations(pending=tuple(POOL[:3])),
    "some results": observed(0.4, 0.6, 0.5, pending=tuple(POOL[10:12])),
    "best and worst possible": observed(0.0, 1.0, 0.5),
    "a NaN": observed(float("nan"), 0.5),
    "only a NaN": observed(float("nan")),
    "thirty results": observed(*(0.3 + 0.01 * n for n in range(30))),
}


@pytest.fixture(params=list(HISTORIES.values()), ids=list(HISTORIES))
def history(request: pytest.FixtureRequest) -> Observations:
    found: Observations = request.param
    return found


def assert_sound(proposal: Proposal, observations: Observations) -> None:
    grown_from = {INITIAL.hash: INITIAL} | {o.architecture.hash: whole(o.architecture) for o in observations.completed}
    assert proposal.architecture.hash not in observations.hashes | {INITIAL.hash}
    assert LIMITS.refusal(proposal.architecture) is None
    assert proposal.parent in grown_from
    assert proposal.morphs
    assert apply_all(grown_from[proposal.parent], proposal.morphs) == proposal.architecture


def test_every_strategy_can_be_configured_and_no_other(name: str) -> None:
    assert load_config(overrides={"search.strategy": name}).search.strategy == name
    with pytest.raises(UsageError, match="unknown search strategy 'luck'; known: bayesian, random"):
        STRATEGIES.load("luck")


def test_a_proposal_is_new_within_the_limits_and_grown_from_what_was_trained(
    strategy: SearchStrategy, history: Observations
) -> None:
    assert_sound(strategy.propose(history, random.Random(0), ALL), history)


def content(known: Observations) -> list[object]:
    """All of it as text, since a NaN does not equal itself."""
    return [[(o.architecture.hash, str(o.accuracy)) for o in known.completed], known.pending, known.failed]


def test_a_proposal_changes_neither_the_history_nor_later_proposals(name: str, history: Observations) -> None:
    used, before = make(name), content(history)
    used.propose(observed(0.9, 0.1, 0.5), random.Random(8), ALL)
    first = used.propose(history, random.Random(3), ALL)
    assert first == used.propose(history, random.Random(3), ALL) == make(name).propose(history, random.Random(3), ALL)
    assert content(history) == before


def test_seeds_lead_to_different_proposals(strategy: SearchStrategy) -> None:
    history = HISTORIES["some results"]
    assert len({strategy.propose(history, random.Random(seed), ALL).architecture.hash for seed in range(6)}) > 1


@pytest.mark.parametrize("history", [HISTORIES["nothing"], HISTORIES["some results"]], ids=["nothing", "some results"])
def test_eight_replicas_at_the_same_moment_propose_eight_architectures_if_there_are_lanes(
    strategy: SearchStrategy, history: Observations
) -> None:
    found = set()
    for replica in range(8):
        partition = Partition.of(replica, 8)
        # The same seed for all: only their partitions keep them apart.
        proposal = strategy.propose(history, random.Random(0), partition)
        assert_sound(proposal, history)
        assert partition.holds(partition_key(proposal.architecture)) or not strategy.partitions
        found.add(proposal.architecture.hash)
    assert len(found) == (8 if strategy.partitions else 1)


def test_architectures_that_are_pending_or_failed_are_not_proposed(strategy: SearchStrategy) -> None:
    free = strategy.propose(observed(0.4, 0.6, 0.5), random.Random(0), ALL).architecture
    pending = observed(0.4, 0.6, 0.5, pending=(free,))
    failed = observed(0.4, 0.6, 0.5, failed=(free.hash,))
    for history in (pending, failed):
        assert strategy.propose(history, random.Random(0), ALL).architecture.hash != free.hash


def test_a_space_without_room_is_a_clear_failure(name: str) -> None:
    full = growth_limits(INITIAL, 1.0, None, 64, 4)
    with pytest.raises(TrialFailedError, match="search: no new architecture within the limits"):
        STRATEGIES.load(name)(INITIAL, full).propose(Observations(), random.Random(0), ALL)
