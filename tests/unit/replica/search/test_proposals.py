"""Proposals and suggestions: the trials of all replicas count, and the work is bounded."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from aiperf.config.space import Hyperparameters, Parameter, Space
from aiperf.network.architecture import Architecture
from aiperf.records.bodies import TrialStarted
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.wire.messages import Job
from replica.search.demo.architectures import random_history
from replica.search.distance import DistanceTable, Floats
from replica.search.knowledge import Knowledge
from replica.search.observations import Observation, Observations
from replica.search.outlines import Known
from replica.search.partitions import ALL
from replica.search.planner import Memory, Planner
from replica.search.strategies import bayesian
from replica.search.strategies.bayesian import BayesianStrategy
from replica.search.surrogate import LANDMARKS, Surrogate
from replica.search.tuners.contract import Result, Tried
from replica.search.tuners.tpe import suggest
from search_space.limits import growth_limits
from search_space.resnet import resnet
from search_space.sampling import random_morph
from tests.support.hand_made import HandMadeRun

INITIAL = resnet(50, 32, 10)
LIMITS = growth_limits(INITIAL, 4.0, None, 64, 4)
POOL = random_history(INITIAL, LIMITS, 60, random.Random(1))
RESULTS = 30
"""More points than a tuner draws at random before it learns."""


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    """Two replicas tune the learning rate of the initial architecture."""
    run = HandMadeRun(tmp_path, {"run.replicas": 2}).at(0).release(1000, replicas=2)
    run.paths.space.write_text(json.dumps({"learning_rate": {"_type": "uniform", "_value": [0.0, 1.0]}}))
    start(run, 1, 0, INITIAL, {"learning_rate": 0.1}, point=0)
    return run.epoch(1, 1).end_trial(1)


def start(
    run: HandMadeRun, trial: int, replica: int, architecture: Architecture, values: Hyperparameters, point: int
) -> None:
    ArchitectureStore(run.paths).save(architecture)
    run.at(trial).replicas[replica].append(
        TrialStarted(
            trial=trial,
            replica=replica,
            round=1,
            architecture=architecture.hash,
            parent=None,
            hyperparameters={"batch_size": 64, **values},
            epochs=2,
            point=point,
            base=1,
        )
    )


def tune(run: HandMadeRun, peak: float) -> None:
    """Results of replica 1 that are best at one learning rate."""
    rng = random.Random(3)
    for trial in range(2, RESULTS + 2):
        rate = rng.random()
        start(run, trial, 1, INITIAL, {"learning_rate": rate}, point=1)
        run.epoch(trial, 1, correct=round(300 * (1 - abs(rate - peak))), replica=1).end_trial(trial, replica=1)


def suggested(run: HandMadeRun) -> list[float]:
    """Learning rates that replica 0 would try next, by the seed of its job."""
    plans = Planner(0, run.config, run.paths, Memory())
    jobs = [Job(trial=900, round=1, point=1, base=1, seed=seed) for seed in range(6)]
    return [float(plans.plan(job).hyperparameters["learning_rate"]) for job in jobs]


@pytest.mark.parametrize("peak", [0.1, 0.9])
def test_results_of_another_replica_steer_the_suggestions(run: HandMadeRun, peak: float) -> None:
    tune(run, peak)
    assert sum(abs(rate - peak) for rate in suggested(run)) / 6 < 0.2, "uniform draws are 0.4 away on average"


def test_points_that_another_replica_still_trains_change_the_suggestions(run: HandMadeRun) -> None:
    tune(run, 0.9)
    before = suggested(run)
    for number, rate in enumerate((0.85, 0.88, 0.9, 0.92, 0.95)):
        start(run, 100 + number, 1, INITIAL, {"learning_rate": rate}, point=1)
    assert suggested(run) != before


def test_a_tuner_moves_away_from_points_that_are_being_tried() -> None:
    line: Space = (Parameter("learning_rate", "uniform", (0.0, 1.0)),)
    results = tuple(Result({"learning_rate": n / RESULTS}, 1 - abs(n / RESULTS - 0.9)) for n in range(RESULTS))
    pending: tuple[Hyperparameters, ...] = tuple({"learning_rate": 0.9 + 0.005 * n} for n in range(-8, 9))

    def distance(tried: Tried) -> float:
        return sum(abs(float(suggest(line, tried, seed)["learning_rate"]) - 0.9) for seed in range(20)) / 20

    assert distance(Tried(results, pending)) > distance(Tried(results))


def test_a_search_sees_the_trials_of_all_replicas(run: HandMadeRun) -> None:
    start(run, 2, 1, POOL[3], {}, point=0)
    run.epoch(2, 1, correct=90, replica=1).end_trial(2, replica=1)
    start(run, 3, 1, POOL[4], {}, point=0)
    knowledge = Knowledge(run.paths)
    knowledge.read()
    found = knowledge.observations()
    assert (POOL[3].hash, 0.25) in [(o.architecture.hash, o.accuracy) for o in found.completed]
    assert [architecture.hash for architecture in found.pending] == [POOL[4].hash]


def proposed(run: HandMadeRun) -> list[str]:
    plans = Planner(0, run.config, run.paths, Memory())
    return [plans.plan(Job(trial=900, round=number, seed=1)).proposal.architecture.hash for number in range(2, 5)]


def test_a_result_of_another_replica_changes_the_proposals(run: HandMadeRun) -> None:
    for trial in range(2, 8):
        start(run, trial, 0, POOL[trial], {}, point=0)
        run.epoch(trial, 1, correct=100 + trial).end_trial(trial)
    before = proposed(run)
    start(run, 8, 1, POOL[20], {}, point=0)
    run.epoch(8, 1, correct=350, replica=1).end_trial(8, replica=1)
    assert proposed(run) != before


def test_a_pending_architecture_counts_for_more_than_its_exclusion() -> None:
    completed = tuple(Observation(architecture, 0.3 + 0.01 * n) for n, architecture in enumerate(POOL[:10]))
    running = tuple(POOL[10:20])
    excluded = Observations(completed, failed=tuple(architecture.hash for architecture in running))
    pending = Observations(completed, pending=running)

    def proposals(known: Observations) -> list[str]:
        strategy = BayesianStrategy(INITIAL, LIMITS)
        return [strategy.propose(known, random.Random(seed), ALL).architecture.hash for seed in range(3)]

    assert proposals(pending) != proposals(excluded)


class Counted:
    """Counts the work of proposals: surrogate calls, candidates, morphs and distances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.candidates = self.morphs = self.distances = self.fits = 0
        bounds, distances, fit = Surrogate.upper_confidence_bounds, DistanceTable.distances, Surrogate.__init__

        def count_bounds(surrogate: Surrogate, candidates: Sequence[Known]) -> Floats:
            self.candidates += len(candidates)
            return bounds(surrogate, candidates)

        def count_distances(table: DistanceTable, one: Known, others: Sequence[Known]) -> Floats:
            self.distances += len(others)
            return distances(table, one, others)

        def count_fits(surrogate: Surrogate, observations: Sequence[Observation], table: DistanceTable) -> None:
            self.fits += 1
            fit(surrogate, observations, table)

        def count_morphs(architecture: Architecture, rng: random.Random) -> object:
            self.morphs += 1
            return random_morph(architecture, rng)

        monkeypatch.setattr(Surrogate, "upper_confidence_bounds", count_bounds)
        monkeypatch.setattr(Surrogate, "__init__", count_fits)
        monkeypatch.setattr(DistanceTable, "distances", count_distances)
        monkeypatch.setattr(bayesian, "random_morph", count_morphs)


def test_the_work_of_a_proposal_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    history = tuple(Observation(architecture, 0.3 + 0.01 * (n % 37)) for n, architecture in enumerate(POOL))
    steps = math.ceil(math.log(bayesian.LEAST_TEMPERATURE / bayesian.START_TEMPERATURE, bayesian.COOLING))
    # A step evaluates one family of children, and the parents again if no branch is left.
    most = bayesian.PARENTS + steps * (bayesian.CHILDREN + bayesian.PARENTS)
    assert most <= 200, "more than that would hold up a replica"
    for seed in range(3):
        counted = Counted(monkeypatch)
        BayesianStrategy(INITIAL, LIMITS).propose(Observations(history), random.Random(seed), ALL)
        monkeypatch.undo()
        assert counted.fits == 1
        assert 0 < counted.candidates <= most
        assert 0 < counted.morphs <= steps * bayesian.CHILDREN
        assert LANDMARKS <= 24
        assert 0 < counted.distances <= LANDMARKS * (len(POOL) + most)
