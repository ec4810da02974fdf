"""The search at scale: what a proposal costs, and what the surrogate of long histories is worth."""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aiperf.network.architecture import Architecture
from aiperf.records.bodies import AnyBody, EpochCompleted, TrialEnded, TrialStarted
from aiperf.records.cursor import Cursor
from aiperf.records.history_files import Batch
from aiperf.records.record import Record
from aiperf.run_directory.paths import RunPaths
from replica.search.demo.architectures import OBJECTIVES, evaluate
from replica.search.demo.hyperparameters import SPACE
from replica.search.distance import Columns, DistanceTable
from replica.search.knowledge import Knowledge
from replica.search.observations import Observation, Observations
from replica.search.outlines import outlined, whole
from replica.search.partitions import Partition
from replica.search.strategies.bayesian import BayesianStrategy
from replica.search.surrogate import LocalSurrogate, Surrogate
from replica.search.tuners import tpe
from replica.search.tuners.contract import Result, Tried
from search_space.limits import growth_limits
from search_space.resnet import resnet
from search_space.sampling import random_morph

INITIAL = resnet(50, 32, 10)
LIMITS = growth_limits(INITIAL, 4.0, None, 64, 4)
PARENTS = 300
"""Architectures that children are made from at a time: whole ones are large."""

HELD_OUT = 500
FURTHER = 20
TRAINING_NOISE = 0.1
"""Deviation of repeated trainings, in units of the deviation of all values."""


def history(number: int, objective: str, seed: int) -> list[Observation]:
    """Architectures one to four morphs away from an earlier one, with values of an objective."""
    rng = random.Random(seed)
    parents, seen = [INITIAL], {INITIAL.hash}
    kept: dict[str, Architecture] = {INITIAL.hash: INITIAL}
    values = {INITIAL.hash: evaluate(objective, INITIAL, INITIAL)}
    found = [Observation(outlined(INITIAL, kept.__getitem__), values[INITIAL.hash])]
    while len(found) < number:
        child = rng.choice(parents)
        for _ in range(rng.randint(1, 4)):
            _, child = random_morph(child, rng)
        if child.hash in seen or LIMITS.refusal(child) is not None:
            continue
        seen.add(child.hash)
        values[child.hash] = kept_value = evaluate(objective, child, INITIAL)
        found.append(Observation(outlined(child, kept.__getitem__), kept_value))
        # The strategy starts from the best ones only.
        kept[child.hash] = child
        if len(kept) > 2 * PARENTS:
            best = sorted(kept, key=lambda name: -values[name])[:PARENTS]
            kept_now = {name: kept[name] for name in best}
            kept.clear()
            kept.update(kept_now)
        if len(parents) < PARENTS:
            parents.append(child)
        else:
            parents[rng.randrange(PARENTS)] = child
    return found


@dataclass(frozen=True, slots=True)
class Quality:
    """A surrogate fitted to a history, on architectures that it does not know.

    `error` is the root mean square error in units of the deviation of all values, `coverage` the
    share of values inside of the interval of 95 %. Null: not measured.
    """

    objective: str
    observations: int
    surrogate: str
    fit_s: float
    error: float
    coverage: float


def qualities(objective: str, sizes: Sequence[int], exact: int) -> Iterator[Quality]:
    """Both surrogates on histories of several lengths; the exact one of at most `exact`."""
    rng = np.random.default_rng(1)
    clean = history(max(sizes) + HELD_OUT, objective, seed=5)
    noise = TRAINING_NOISE * float(np.std([observation.accuracy for observation in clean]))
    every = [Observation(o.architecture, o.accuracy + noise * rng.standard_normal()) for o in clean]
    held_out = every[-HELD_OUT:]
    values = np.array([observation.accuracy for observation in held_out])
    table = DistanceTable()
    columns = Columns(table)
    for size in sizes:
        known = every[:size]
        deviation = float(np.std([observation.accuracy for observation in known]))
        for name in ("exact", "local") if size <= exact else ("local",):
            LocalSurrogate(known, table, columns)  # distances are of the history, not of the fit
            began = time.process_time()
            model = Surrogate(known, table) if name == "exact" else LocalSurrogate(known, table, columns)
            fit_s = time.process_time() - began
            mean, sigma = model.predict([observation.architecture for observation in held_out])
            yield Quality(
                objective,
                size,
                name,
                fit_s,
                float(np.sqrt(np.mean((mean - values) ** 2)) / deviation),
                float(np.mean(np.abs(mean - values) < 1.96 * sigma)),
            )


@dataclass(frozen=True, slots=True)
class ProposalCost:
    """CPU seconds of a proposal: the first of a process, and one after a further result."""

    observations: int
    first_s: float
    next_s: float


def proposal_cost(number: int) -> ProposalCost:
    """The cost at a history of that length."""
    found = history(number + 1, "peak", seed=5)
    strategy, seconds = BayesianStrategy(INITIAL, LIMITS), []
    for known in (found[:-1], found):
        began = time.process_time()
        strategy.propose(Observations(tuple(known)), random.Random(1), Partition(0, 16))
        seconds.append(time.process_time() - began)
    return ProposalCost(number, *seconds)


@dataclass(frozen=True, slots=True)
class Further:
    """The best value of further proposals, by surrogate: medians over seeds.

    `start` is the number of observations that they begin with; with one of them, the local process
    is forced on from the beginning.
    """

    objective: str
    start: int
    proposals: int
    exact: float
    local: float


def further(objective: str, start: int, proposals: int, seeds: int) -> Further:
    """Proposals of both surrogates after the same history."""
    found = [bests(objective, start, proposals, seed) for seed in range(seeds)]
    exact, local = (statistics.median(values) for values in zip(*found, strict=True))
    return Further(objective, start, proposals, exact, local)


def bests(objective: str, start: int, proposals: int, seed: int) -> tuple[float, float]:
    """The best value of further proposals of the exact process, and of the local one."""
    known = history(start, objective, seed)
    exact, local = (_best(objective, known, proposals, most, seed) for most in (10**9, 0))
    return exact, local


def _best(objective: str, start: Sequence[Observation], proposals: int, exact: int, seed: int) -> float:
    known, strategy = [*start], BayesianStrategy(INITIAL, LIMITS, exact)
    made: dict[str, Architecture] = {}
    best = 0.0 if len(start) > 1 else known[0].accuracy
    for number in range(proposals):
        rng = random.Random(f"{seed}/{number}")
        child = strategy.propose(Observations(tuple(known)), rng).architecture
        made[child.hash] = whole(child)
        value = evaluate(objective, child, INITIAL)
        known.append(Observation(outlined(child, made.__getitem__), value))
        best = max(best, value)
    return best


@dataclass(frozen=True, slots=True)
class PointCost:
    """CPU seconds of a suggestion at the first and at the last place of 16 partitions."""

    results: int
    first_s: float
    last_s: float


def point_cost(number: int) -> PointCost:
    """The cost with that many results."""
    rng = random.Random(1)
    some = [tpe.suggest_at_random(SPACE, Tried(), seed) for seed in range(min(number, 200))]
    tried = Tried(tuple(Result(some[place % len(some)], rng.random()) for place in range(number)))
    seconds = []
    # The places are those of one sequence: the last one draws the suggestions of all before it.
    for partition in (Partition(0, 16), Partition(15, 16)):
        began = time.process_time()
        tpe.suggest(SPACE, tried, 1, partition)
        seconds.append(time.process_time() - began)
    return PointCost(number, *seconds)


@dataclass(frozen=True, slots=True)
class LookCost:
    """CPU seconds of what a proposal looks up of a history: at first, and with a new trial."""

    trials: int
    first_s: float
    next_s: float


class _Recorded:
    """Records in memory, in place of those of files."""

    def __init__(self) -> None:
        self.coming: list[Record] = []

    def read_files(self) -> Iterator[Batch]:
        """The records that are new."""
        batch, self.coming = self.coming, []
        yield Batch(tuple(batch), ())

    def cursor(self) -> Cursor:
        """No cursor: nothing is replayed."""
        return Cursor()


def look_cost(trials: int) -> LookCost:
    """The cost of `ranked`, `tried`, `trainings` and the count of the points."""
    source = _Recorded()
    knowledge = Knowledge(RunPaths(Path("unused")), source)
    rng, number = random.Random(1), 0
    seconds = []
    for added in (trials, 1):
        for _ in range(added):
            number += 1
            source.coming += _records(number, rng)
        knowledge.read()
        began = time.process_time()
        knowledge.ranked(), knowledge.tried(SPACE), knowledge.trainings(), knowledge.points_started()
        seconds.append(time.process_time() - began)
    return LookCost(trials, *seconds)


def _records(trial: int, rng: random.Random) -> list[Record]:
    started = TrialStarted(
        trial=trial,
        replica=0,
        round=trial,
        architecture=f"{trial % 8000:016x}",
        parent=None,
        epochs=20,
        point=trial % 3,
        hyperparameters={"batch_size": rng.randrange(16, 513), "momentum": rng.random()},
    )
    epochs = [
        EpochCompleted(
            trial=trial,
            epoch=epoch,
            images_trained=1000,
            images_evaluated=1000,
            correct=rng.randrange(900),
            loss=2.0,
            validation_loss=2.1,
            learning_rate=0.1,
        )
        for epoch in range(1, 21)
    ]
    bodies: list[AnyBody] = [started, *epochs, TrialEnded(trial=trial, reason="completed")]
    return [Record("one-1", 22 * trial + place, trial, trial, body) for place, body in enumerate(bodies)]


PARTS = ("points", "looks", "proposals", "qualities", "further")
Row = PointCost | LookCost | ProposalCost | Quality | Further
Found = dict[str, list[Row]]
"""What was measured, by part."""


def measure(scratch: Path) -> dict[str, float]:
    """CPU seconds: a proposal after one more result at 1,000 and at 20,000, and a point at 13,000.

    The point is at the last place of 16 partitions. Nothing is written to `scratch`.
    """
    return {
        "proposal_cpu_s_1000": proposal_cost(1000).next_s,
        "proposal_cpu_s_20000": proposal_cost(20_000).next_s,
        "tpe_cpu_s_13000": point_cost(13_000).last_s,
    }


def measure_parts(parts: Sequence[str], seeds: int, sizes: Sequence[int], exact: int) -> Found:
    """Costs, qualities, and the gain of further proposals, as far as they are asked for."""
    found: dict[str, Callable[[], list[Row]]] = {
        "points": lambda: [point_cost(number) for number in (100, 400, 1000, 13_000)],
        "looks": lambda: [look_cost(number) for number in (1000, 20_000)],
        "proposals": lambda: [proposal_cost(size) for size in sizes],
        "qualities": lambda: [row for objective in OBJECTIVES for row in qualities(objective, sizes, exact)],
        "further": lambda: [
            further(objective, start, proposals, seeds)
            for objective in OBJECTIVES
            for start, proposals in ((1, 30), (min(2000, exact), FURTHER))
        ],
    }
    return {part: found[part]() for part in parts}
