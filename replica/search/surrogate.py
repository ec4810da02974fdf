"""The surrogate: a Gaussian process over architectures.

An edit distance is not Euclidean, so exp(-d^2) of it need not be positive semi-definite. Therefore
each architecture is first mapped to its distances to a few landmarks of the history (a Frechet
embedding, Matousek 2002, chapter 15). The Gaussian kernel of these vectors is positive
semi-definite for any distance. Landmarks are chosen by farthest-first traversal (Gonzalez 1985)
from the first architecture, so the same history gives the same kernel on any node.

The exact process costs n^3 for n observations. `InducedSurrogate` costs n: the process is projected
on the kernel functions of some observations, with the exact process's variance where these say
nothing (deterministic training conditional, Quinonero-Candela and Rasmussen 2005, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from replica.search.distance import Columns, DistanceTable, Floats
from replica.search.observations import Observation
from replica.search.outlines.outline import Known

LANDMARKS = 24
"""Most landmarks. More of them give a finer prediction at a higher cost."""

LENGTH_SCALES = (0.3, 0.6, 1.2, 2.5, 5.0)
"""In units of the median distance to the landmarks; the likeliest one is taken."""

NOISE = 0.01
"""Variance of repeated trainings, in units of the variance of all observations."""

UCB_BETA = 2.576
"""Weight of the deviation in the upper confidence bound: 99 %, as in Auto-Keras."""


POOL = 500
"""The landmarks of a long history are of this many first observations: they stay the same."""

INDUCING = 128
"""Most observations, evenly spread over the history, whose kernel functions span the model."""

NOISES = (0.01, 0.03, 0.1, 0.3)
"""`NOISE` of a long history, the likeliest one: a few coordinates do not tell all apart."""

JITTER = 1e-6
"""Added to the variance of the inducing observations, which may repeat each other."""


class Bounds(Protocol):
    """A model of the accuracies of all architectures, fitted to observations."""

    def upper_confidence_bounds(self, candidates: Sequence[Known]) -> Floats:
        """Mean plus `UCB_BETA` deviations of the accuracy of every candidate, (n,)."""


class Surrogate:
    """The exact process."""

    def __init__(self, observations: Sequence[Observation], table: DistanceTable) -> None:
        self._table = table
        architectures = [observation.architecture for observation in observations]
        self._landmarks, distances = _farthest_first(architectures, table)
        self._unit = _median_distance(distances)
        values = np.array([observation.accuracy for observation in observations])
        self._mean = float(values.mean())
        self._deviation = float(values.std()) or 1.0
        self._process = _fit(distances / self._unit, (values - self._mean) / self._deviation)

    def upper_confidence_bounds(self, candidates: Sequence[Known]) -> Floats:
        """Mean plus `UCB_BETA` deviations of the accuracy of every candidate, (n,)."""
        mean, deviation = self.predict(candidates)
        bounds: Floats = mean + UCB_BETA * deviation
        return bounds

    def predict(self, candidates: Sequence[Known]) -> tuple[Floats, Floats]:
        """Means and deviations of the accuracies that trainings would reach, (n,) each."""
        rows = [self._table.distances(candidate, self._landmarks) for candidate in candidates]
        mean, deviation = self._process.predict(_scaled(np.array(rows) / self._unit), return_std=True)
        return self._mean + self._deviation * mean, self._deviation * deviation

    def covariance(self) -> Floats:
        """The kernel matrix of the observations, (n, n), without noise, for a variance of 1."""
        result: Floats = self._process.kernel_.k1(self._process.X_train_)
        return result


class InducedSurrogate:
    """The process of a long history; it costs time in proportion to the observations.

    `columns` may know distances of an earlier history; the model depends on `observations` alone.
    """

    def __init__(self, observations: Sequence[Observation], table: DistanceTable, columns: Columns) -> None:
        architectures = [observation.architecture for observation in observations]
        self._table = table
        self._landmarks, _ = _farthest_first(architectures[:POOL], table)
        distances = columns.distances(architectures, self._landmarks)
        self._unit = _median_distance(distances)
        points = _scaled(distances / self._unit)
        values = np.array([observation.accuracy for observation in observations])
        self._mean = float(values.mean())
        self._deviation = float(values.std()) or 1.0
        spread = np.unique(np.linspace(0, len(points) - 1, INDUCING).round().astype(np.intp))
        self._inducing = points[spread]
        scaled = (values - self._mean) / self._deviation
        fits = [fit for scale in LENGTH_SCALES for fit in _projections(points, scaled, self._inducing, scale)]
        self._fit = max(fits, key=lambda fit: fit.likelihood)

    def upper_confidence_bounds(self, candidates: Sequence[Known]) -> Floats:
        """Mean plus `UCB_BETA` deviations of the accuracy of every candidate, (n,)."""
        mean, deviation = self.predict(candidates)
        bounds: Floats = mean + UCB_BETA * deviation
        return bounds

    def predict(self, candidates: Sequence[Known]) -> tuple[Floats, Floats]:
        """Means and deviations of the accuracies that trainings would reach, (n,) each."""
        rows = [self._table.distances(candidate, self._landmarks) for candidate in candidates]
        points, fit = _scaled(np.array(rows) / self._unit), self._fit
        prior = solve_triangular(fit.root, _kernel(self._inducing, points, fit.scale), lower=True)
        posterior = solve_triangular(fit.information, prior, lower=True)
        variance = 1 + fit.noise - (prior**2).sum(axis=0) + (posterior**2).sum(axis=0)
        deviation: Floats = self._deviation * np.sqrt(np.maximum(variance, fit.noise))
        return self._mean + self._deviation * (posterior.T @ fit.weights), deviation


class _Projection(NamedTuple):
    """A process on the span of m inducing points, as triangular factors (m, m) and weights (m,)."""

    likelihood: float
    scale: float
    noise: float
    root: Floats
    """Of the inducing points' covariance."""
    information: Floats
    """Root of 1 plus what the observations say of the points, in units of the noise."""
    weights: Floats


def _projections(points: Floats, values: Floats, inducing: Floats, scale: float) -> list[_Projection]:
    """The processes of one length scale, one for each of `NOISES`."""
    cross = _kernel(inducing, points, scale)
    root = cholesky(_kernel(inducing, inducing, scale) + JITTER * np.eye(len(inducing)), lower=True)
    sums = solve_triangular(root, solve_triangular(root, cross @ cross.T, lower=True).T, lower=True)
    target = solve_triangular(root, cross @ values, lower=True)
    found = []
    # A few observations cannot tell noise from what they do not resolve.
    for noise in NOISES if len(values) > INDUCING else (NOISE,):
        information = cholesky(np.eye(len(inducing)) + sums / noise, lower=True)
        weights = solve_triangular(information, target, lower=True) / noise
        misfit = float(values @ values) / noise - float(weights @ weights)
        volume = 2 * float(np.log(np.diag(information)).sum()) + len(values) * float(np.log(noise))
        found.append(_Projection(-0.5 * (misfit + volume), scale, noise, root, information, weights))
    return found


def _kernel(one: Floats, other: Floats, scale: float) -> Floats:
    result: Floats = np.exp(cdist(one, other, "sqeuclidean") / (-2 * scale**2))
    return result


def _farthest_first(architectures: Sequence[Known], table: DistanceTable) -> tuple[list[Known], Floats]:
    """Landmarks, and the distances of every architecture to them as (architectures, landmarks)."""
    landmarks = [architectures[0]]
    columns = [table.distances(architectures[0], architectures)]
    nearest = columns[0]
    while len(landmarks) < LANDMARKS and nearest.max() > 0:
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
    for scale in LENGTH_SCALES:
        kernel = RBF(scale) + WhiteKernel(NOISE)
        process = GaussianProcessRegressor(kernel=kernel, optimizer=None).fit(points, values)
        fitted.append((process.log_marginal_likelihood_value_, process))
    return max(fitted, key=lambda item: float(item[0]))[1]
