"""The surrogate: a Gaussian process over architectures.

An edit distance is not Euclidean, so exp(-d^2) of it need not be positive semi-definite. Therefore
each architecture is first mapped to its distances to a few landmarks of the history (a Frechet
embedding, Matousek 2002, chapter 15). The Gaussian kernel of these vectors is positive
semi-definite for any distance. Landmarks are chosen by farthest-first traversal (Gonzalez 1985)
from the first architecture, so the same history gives the same kernel on any node.

The exact process costs n^3 for n observations. `LocalSurrogate` is the exact process of a number
of them, those nearest to the best (a local expert, Rasmussen and Ghahramani 2002), with landmarks
of their own: from those of the whole history, neighbours look alike. Candidates are a few morphs
away from the best; what is far from them has next to no covariance with it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from aiperf.frameworks import hidden
from replica.search.distance import Columns, DistanceTable, Floats
from replica.search.observations import Observation
from replica.search.outlines import Known

with hidden("pandas"):  # scikit-learn imports it for tables, which takes as long as all else of this
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel

LANDMARKS = 24
"""Most landmarks. More of them give a finer prediction at a higher cost."""

OWN_LANDMARKS = 48
"""Most landmarks of a local process, whose observations are more alike."""

LENGTH_SCALES = (0.3, 0.6, 1.2, 2.5, 5.0)
"""Length scales in units of the median distance to the landmarks; the likeliest one is taken."""

NOISE = 0.01
"""Variance of repeated trainings, in units of the variance of all observations."""

ALIKE = 1e-9
"""Share of the largest observation below which differences between observations are rounding."""

UCB_BETA = 2.576
"""Weight of the deviation in the upper confidence bound: 99 %, as in Auto-Keras."""


NEAREST = 500
"""Observations of a local process. They are found by landmarks among as many of the first ones:
landmarks of later ones would change as a run grows, and with them all distances."""

BEST = 5
"""Number of the most accurate observations, around which a local process is: children of these are
proposed."""


class Surrogate:
    """The exact Gaussian process of all observations."""

    def __init__(self, observations: Sequence[Observation], table: DistanceTable) -> None:
        self._table = table
        values = np.array([observation.accuracy for observation in observations])
        self._mean, self._deviation = float(values.mean()), float(values.std())
        # The mean of equal values may differ from them in its last bit: a deviation of that size
        # would leave nothing to explore, and rounding would choose among equal bounds.
        self._alike = bool(np.ptp(values) <= ALIKE * np.abs(values).max())
        if self._alike:
            values, self._deviation = np.full(len(values), self._mean), 1.0
        near = self._near(observations, values)
        most = LANDMARKS if len(near) == len(observations) else OWN_LANDMARKS
        self._landmarks, distances = _farthest_first([observations[place].architecture for place in near], table, most)
        self._unit = _median_distance(distances)
        self._process = _fit(distances / self._unit, (values[near] - self._mean) / self._deviation)

    def _near(self, observations: Sequence[Observation], values: Floats) -> NDArray[np.intp]:
        """Places of the observations that the process has, in order."""
        return np.arange(len(observations))

    def upper_confidence_bounds(self, candidates: Sequence[Known]) -> Floats:
        """Mean plus `UCB_BETA` deviations of the accuracy of every candidate, (n,).

        If all observations are alike, their common mean is left out: it is the same for all.
        """
        mean, deviation = self.predict(candidates)
        if self._alike:
            mean = np.zeros(len(candidates))
        bounds: Floats = mean + UCB_BETA * deviation
        return bounds

    def predict(self, candidates: Sequence[Known]) -> tuple[Floats, Floats]:
        """Means and deviations of the accuracies that trainings would reach, (n,) each."""
        rows = [self._table.distances(candidate, self._landmarks) for candidate in candidates]
        mean, deviation = self._process.predict(_scaled(np.array(rows) / self._unit), return_std=True)
        return self._mean + self._deviation * mean, self._deviation * deviation

    def covariance(self) -> Floats:
        """The kernel matrix of the observations, (n, n), without noise, for a variance of 1."""
        # `k1` is the first term of the sum in `_fit`, without that of the noise.
        result: Floats = self._process.kernel_.k1(self._process.X_train_)
        return result


class LocalSurrogate(Surrogate):
    """The exact process of the observations near the best ones, for a long history.

    Its mean and its deviation are of all. Up to `NEAREST` observations it is `Surrogate`. `columns`
    may know distances of an earlier history; the model depends on `observations` alone.
    """

    def __init__(self, observations: Sequence[Observation], table: DistanceTable, columns: Columns) -> None:
        self._columns = columns
        super().__init__(observations, table)

    def _near(self, observations: Sequence[Observation], values: Floats) -> NDArray[np.intp]:
        architectures = [observation.architecture for observation in observations]
        landmarks, _ = _farthest_first(architectures[:NEAREST], self._table, LANDMARKS)
        return _near_the_best(self._columns.distances(architectures, landmarks), values)


def _near_the_best(embedded: Floats, values: Floats) -> NDArray[np.intp]:
    """Places of the `NEAREST` observations that are nearest to any of the best ones, in order."""
    # Stable sorts throughout: ties must fall the same way on every replica and at a referee's.
    best = np.argsort(-values, kind="stable")[:BEST]
    apart = cdist(embedded, embedded[best], "sqeuclidean").min(axis=1)
    return np.sort(np.argsort(apart, kind="stable")[:NEAREST])


def _farthest_first(architectures: Sequence[Known], table: DistanceTable, most: int) -> tuple[list[Known], Floats]:
    """Landmarks, and the distances of every architecture to them as (architectures, landmarks)."""
    landmarks = [architectures[0]]
    columns = [table.distances(architectures[0], architectures)]
    nearest = columns[0]
    # At 0 every architecture equals a landmark: another one would only repeat a column.
    while len(landmarks) < most and nearest.max() > 0:
        landmarks.append(architectures[int(nearest.argmax())])
        columns.append(table.distances(landmarks[-1], architectures))
        nearest = np.minimum(nearest, columns[-1])
    return landmarks, np.stack(columns, axis=1)


def _median_distance(distances: Floats) -> float:
    apart = distances[distances > 0]
    return float(np.median(apart)) if apart.size else 1.0


def _scaled(embedded: Floats) -> Floats:
    """Coordinates scaled so that distances do not grow with the number of landmarks."""
    result: Floats = embedded / np.sqrt(embedded.shape[1])
    return result


def _fit(embedded: Floats, values: Floats) -> GaussianProcessRegressor:
    points = _scaled(embedded)
    fitted = []
    # A few scales instead of an optimiser, whose result would follow the rounding of a processor:
    # replicas and referees must get the same proposal.
    for scale in LENGTH_SCALES:
        kernel = RBF(scale) + WhiteKernel(NOISE)
        process = GaussianProcessRegressor(kernel=kernel, optimizer=None).fit(points, values)
        fitted.append((process.log_marginal_likelihood_value_, process))
    return max(fitted, key=lambda item: float(item[0]))[1]
