"""Made-up objectives of the demos."""

import pytest

from aiperf.config.space import Hyperparameters
from replica.search.demo.hyperparameters import OBJECTIVES, OPTIMUM, coordinates, steps


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_objectives_are_accuracies_with_their_largest_value_at_the_optimum(name: str) -> None:
    best: Hyperparameters = {
        "kernel_size": 3,
        "batch_size": 314,
        "learning_rate": 0.126,
        "momentum": 0.892,
        "label_smoothing": 0.1,
    }
    assert all(abs(u - v) < 0.02 for u, v in zip(coordinates(best), OPTIMUM, strict=True))
    values = [step.value for step in steps(name, "random", 40, 1)]
    assert all(0 <= value <= 1 for value in values)
    assert max(values) < OBJECTIVES[name](best)
