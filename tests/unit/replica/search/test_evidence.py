"""What the tuners learn from in a long history."""

import random
from typing import Any

from hyperopt import Trials, rand
from hyperopt.base import Domain

from aiperf.config.space import Hyperparameters, Parameter, Space
from replica.search.partitions import Partition
from replica.search.tuners.contract import Result, Tried
from replica.search.tuners.tpe import BEST, GAMMA, NEWEST, draw, evidence, good_share, suggest

LINE: Space = (Parameter("learning_rate", "uniform", (0.0, 1.0)),)
MANY = 4 * (NEWEST + BEST)


def results(number: int, seed: int = 1) -> tuple[Result, ...]:
    rng = random.Random(seed)
    return tuple(Result({"learning_rate": rng.random()}, rng.random()) for _ in range(number))


def test_all_of_a_short_history_counts() -> None:
    found = results(NEWEST + BEST)
    waiting: tuple[Hyperparameters, ...] = ({"learning_rate": 0.5},)
    mean = sum(result.accuracy for result in found) / len(found)
    assert evidence(Tried(found, waiting)) == [*found, Result(waiting[0], mean)]
    assert good_share(Tried(found, waiting)) == GAMMA


def test_the_newest_and_the_best_of_a_long_history_count() -> None:
    found = list(results(MANY))
    found[3] = Result({"learning_rate": 0.25}, 1.0)
    kept = evidence(Tried(tuple(found)))
    assert len(kept) == NEWEST + BEST
    assert found[3] in kept
    assert kept[BEST:] == found[-NEWEST:]
    left_out = [result.accuracy for result in found[:-NEWEST] if result not in kept]
    assert max(left_out) <= min(result.accuracy for result in kept[:BEST])
    good = good_share(Tried(tuple(found))) * len(kept) ** 0.5
    assert abs(good - GAMMA * MANY**0.5) < 1e-9, "as many count as good as of the whole history"


def test_points_in_progress_and_out_of_memory_are_bounded_too() -> None:
    points: tuple[Hyperparameters, ...] = tuple({"learning_rate": u / MANY} for u in range(MANY))
    too_large = tuple(Result(point, 0.0, out_of_memory=True) for point in points)
    kept = evidence(Tried(too_large, points))
    assert [result.hyperparameters for result in kept] == [*points[-NEWEST:], *points[-NEWEST:]]


def test_a_lane_pays_for_the_model_not_for_the_history() -> None:
    seen: list[int] = []

    def noted(new_ids: list[int], domain: Domain, trials: Trials, seed: int) -> Any:
        seen.append(len(trials.trials))
        return rand.suggest(new_ids, domain, trials, seed)

    draw(LINE, Tried(results(MANY)), 1, Partition(15, 16), noted)
    assert seen == list(range(NEWEST + BEST, NEWEST + BEST + 16))


def test_sixteen_lanes_differ_in_a_long_history_and_learn_from_an_early_peak() -> None:
    early = tuple(Result({"learning_rate": 0.2 + 0.001 * n}, 0.9 + 0.001 * n) for n in range(30))
    late = tuple(Result(result.hyperparameters, result.accuracy / 2) for result in results(2 * NEWEST))
    found = [float(suggest(LINE, Tried((*early, *late)), 1, Partition(n, 16))["learning_rate"]) for n in range(16)]
    assert len(set(found)) == 16
    assert sum(0.15 < rate < 0.28 for rate in found) >= 8
