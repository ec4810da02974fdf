"""The Gaussian process over architectures."""

import random
import subprocess
import sys

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiperf.network.architecture import Architecture
from replica.search.demo.architectures import random_history
from replica.search.distance import DistanceTable
from replica.search.observations import Observation
from replica.search.surrogate import Surrogate
from search_space.limits import growth_limits
from search_space.resnet import resnet

INITIAL = resnet(50, 32, 10)


LIMITS = growth_limits(INITIAL, 4.0, None, 64, 4)


POOL = random_history(INITIAL, LIMITS, 60, random.Random(1))

TABLE = DistanceTable()


def observations(values: list[float], architectures: list[Architecture] | None = None) -> tuple[Observation, ...]:
    return tuple(map(Observation, architectures or POOL, values))  # of the first ones


def test_the_kernel_is_positive_semi_definite_and_the_surrogate_interpolates() -> None:
    rng = random.Random(4)
    data = observations([rng.random() for _ in range(40)])
    surrogate = Surrogate(data, DistanceTable())
    covariance = surrogate.covariance()
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    assert covariance.shape == (40, 40), "no observation is dropped"


def test_duplicates_and_equal_accuracies_do_no_harm() -> None:
    same = observations([0.5] * 6, [INITIAL] * 3 + POOL[1:4])
    bounds = Surrogate(same, DistanceTable()).upper_confidence_bounds([INITIAL, POOL[5]])
    assert np.all(np.isfinite(bounds))
    assert bounds[1] > bounds[0], "the unknown has the higher bound"


def test_a_pending_trial_lowers_the_bound_around_it() -> None:
    data = observations([0.4, 0.6, 0.5])
    free, near = DistanceTable(), POOL[20]
    alone = Surrogate(data, free).upper_confidence_bounds([near])[0]
    lied = Surrogate((*data, Observation(near, 0.5)), free).upper_confidence_bounds([near])[0]
    assert lied < alone


def test_it_imports_no_tables() -> None:
    """It takes a third of a second of each agent."""
    program = "import sys, replica.search.surrogate; print('pandas' in sys.modules, 'sklearn' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "True"]


@settings(derandomize=True, max_examples=25, deadline=None)
@given(common=st.floats(1e-4, 1), count=st.integers(1, 12), lies=st.integers(0, 3))
@example(common=0.1, count=3, lies=0)
@example(common=0.001, count=7, lies=2)
def test_bounds_do_not_depend_on_the_common_value_of_equal_accuracies(common: float, count: int, lies: int) -> None:
    lie = sum([common] * count) / count  # of pending trials: it may differ in its last bit
    found = Surrogate(observations([common] * count + [lie] * lies), TABLE).upper_confidence_bounds(POOL[20:30])
    wanted = Surrogate(observations([0.5] * (count + lies)), TABLE).upper_confidence_bounds(POOL[20:30])
    np.testing.assert_array_equal(found, wanted)
    assert np.ptp(found) > 0, "candidates are told apart"
