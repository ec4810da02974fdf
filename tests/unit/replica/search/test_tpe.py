"""The tree-structured Parzen estimator beyond its contract."""

import random

from aiperf.config.space import Hyperparameters, Parameter, Space
from aiperf.rules.schedule import RANDOM_POINTS
from replica.search.demo.hyperparameters import OBJECTIVES, SPACE, steps
from replica.search.partitions import Partition
from replica.search.tuners.contract import Result, Tried, Tuner
from replica.search.tuners.tpe import suggest, suggest_at_random

LINE: Space = (Parameter("learning_rate", "uniform", (0.0, 1.0)),)


def tried_line(values: int, peak: float) -> Tried:
    rng = random.Random(3)
    points = [rng.random() for _ in range(values)]
    return Tried(tuple(Result({"learning_rate": u}, 1 - abs(u - peak)) for u in points))


def test_it_maximises_accuracy() -> None:
    """Fails if the sign is wrong: suggestions gather near the highest accuracy."""
    for peak in (0.1, 0.9):
        drawn = [float(suggest(LINE, tried_line(60, peak), seed)["learning_rate"]) for seed in range(20)]
        assert sum(abs(u - peak) for u in drawn) / 20 < 0.15


def test_after_five_points_the_history_decides() -> None:
    def drawn(tried: Tried) -> list[Hyperparameters]:
        return [suggest(LINE, tried, seed) for seed in range(5)]

    assert drawn(tried_line(RANDOM_POINTS, 0.1)) != drawn(tried_line(RANDOM_POINTS, 0.9))
    assert drawn(tried_line(RANDOM_POINTS - 1, 0.1)) == drawn(tried_line(RANDOM_POINTS - 1, 0.9))
    assert RANDOM_POINTS <= 5


def test_tpe_beats_random_search() -> None:
    def median(strategy: str) -> float:
        return sorted(list(steps("rastrigin", strategy, 40, seed))[-1].best for seed in range(9))[4]

    assert median("tpe") > median("random")
    assert {parameter.kind for parameter in SPACE} == {"choice", "randint", "loguniform", "uniform", "quniform"}


def test_points_in_progress_are_no_evidence_before_the_first_result() -> None:
    points: list[Hyperparameters] = [{"learning_rate": u} for u in (0.1, 0.3, 0.5, 0.7, 0.9)]
    running = Tried(pending=tuple(points))
    assert [suggest(LINE, running, seed) for seed in range(5)] == [suggest(LINE, Tried(), seed) for seed in range(5)]
    one = Tried((Result(points[0], 0.5),), pending=tuple(points[1:]))
    assert [suggest(LINE, one, seed) for seed in range(5)] != [suggest(LINE, Tried(), seed) for seed in range(5)]


def test_the_suggestions_of_sixteen_lanes_are_learned_too() -> None:
    objective = OBJECTIVES["sphere"]
    points = [suggest_at_random(SPACE, Tried(), seed) for seed in range(40)]
    tried = Tried(tuple(Result(point, objective(point)) for point in points))

    def mean(tuner: Tuner) -> float:
        return (
            sum(
                objective(tuner(SPACE, tried, seed, Partition(partition, 16)))
                for seed in range(3)
                for partition in range(16)
            )
            / 48
        )

    assert mean(suggest) > 1.2 * mean(suggest_at_random)
