"""The tree-structured Parzen estimator beyond its contract."""

from __future__ import annotations

import random

from aiperf.config.space import Hyperparameters, Parameter, Space
from replica.search.demo.hyperparameters import SPACE, steps
from replica.search.tuners.contract import Result, Tried
from replica.search.tuners.tpe import STARTUP_SUGGESTIONS, suggest

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


def test_after_the_start_up_suggestions_the_history_decides() -> None:
    def drawn(tried: Tried) -> list[Hyperparameters]:
        return [suggest(LINE, tried, seed) for seed in range(5)]

    assert drawn(tried_line(STARTUP_SUGGESTIONS + 5, 0.1)) != drawn(tried_line(STARTUP_SUGGESTIONS + 5, 0.9))
    assert drawn(tried_line(3, 0.1)) == drawn(tried_line(3, 0.9)), "start-up suggestions are random"


def test_tpe_beats_random_search() -> None:
    def median(strategy: str) -> float:
        return sorted(list(steps("rastrigin", strategy, 40, seed))[-1].best for seed in range(9))[4]

    assert median("tpe") > median("random")
    assert {parameter.kind for parameter in SPACE} == {"choice", "randint", "loguniform", "uniform", "quniform"}
