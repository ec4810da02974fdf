"""Effects of replicas on a measure, by a robust fit: what is left when the work is accounted for.

The fit is Huber's M-estimator by iteratively reweighted least squares (Huber and Ronchetti, Robust
Statistics, 2009, section 7.8). The effect of a replica is the median of what the fit leaves of its
observations. Slow replicas are left out and the fit is repeated until no more are found, so that
they do not bend what they are compared with.
"""

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Marks = NDArray[np.bool_]

FEWEST = 4
"""Replicas of a kind from which on they are compared."""

LEAST = 0.05
"""Share by which a slow replica is slower at least."""

WRONGLY = 0.01
"""Probability that a run without slow replicas accuses any (Bonferroni over its replicas)."""

PER_COLUMN = 5
"""Observations for each column of a fit; with fewer nothing is judged (our choice)."""

_TUNING = 1.345
"""Huber's constant: 95 % efficiency for normal errors (Huber and Ronchetti, section 4.5)."""

_NORMAL = 1.4826
"""Standard deviation of a normal distribution in median absolute deviations."""

_OF_PAIRS = 2.2219
"""Standard deviation of a normal distribution in first quartiles of the distances of its pairs."""

_EFFICIENCY = 0.82
"""Share of the information on a standard deviation that Qn takes from normal values."""

_OF_FEW = {2: 0.399, 3: 0.994, 4: 0.512, 5: 0.844, 6: 0.611, 7: 0.857, 8: 0.669, 9: 0.872}
"""Factors that correct Qn for so few values."""

_OF_MEDIAN = 1.2533
"""Standard error of a median of normal values in standard errors of their mean: sqrt(pi / 2)."""

_ROUNDS, _REPEATS = 30, 5

_HALVINGS = 60
"""Of a distance: what is left of it is below the precision of a float."""


@dataclass(frozen=True, eq=False)
class Effects:
    """The effect of each replica: logarithms of factors, and their standard errors."""

    replicas: NDArray[np.int64]
    effects: Numbers
    errors: Numbers
    """Standard error of each effect."""
    counts: NDArray[np.int64]
    """Observations of each."""
    slow: Marks
    predicted: Numbers
    """Value of each observation by the fit, at the median replica."""

    @property
    def reach(self) -> float:
        """Student's t of a 95 % interval."""
        return _student(0.975, len(self.replicas) - 1)


def effects_of(replicas: NDArray[np.int64], values: Numbers, columns: Numbers) -> Effects | None:
    """The effects of replicas on (observations,) logarithms, apart from (observations, n) columns.

    `replicas` has the replica of each observation. None if there are too few observations to tell
    the effect of a replica from that of a column.
    """
    design = _design(columns)
    if len(values) < PER_COLUMN * design.shape[1] and design.shape[1] > 1:
        return None
    numbers, places, counts = np.unique(replicas, return_inverse=True, return_counts=True)
    slow = np.zeros(len(numbers), bool)
    for _ in range(_REPEATS):
        fitted = design @ _fit(design[~slow[places]], values[~slow[places]])
        left = values - fitted
        centres = _medians(left, places, len(numbers))
        # Relative to the median replica that is not slow: what the fit's constant gets wrong is in
        # all centres alike.
        middle = float(np.median(centres[~slow]))
        effects = centres - middle
        spread = _spread(effects[~slow])
        errors = _errors(left - centres[places], counts, places, spread)
        found = _judged(effects, np.maximum(spread, errors), int((~slow).sum()))
        # If most seem slow, there is no ground to judge by: what was judged before stays.
        if (found == slow).all() or found.sum() > len(numbers) / 2:
            break
        slow = found
    return Effects(numbers, effects, errors, counts, slow, fitted + middle)


def _design(columns: Numbers) -> Numbers:
    """A constant and those columns that vary."""
    varying = columns[:, np.ptp(columns, axis=0) > 1e-9] if len(columns) else columns
    centred = varying - varying.mean(axis=0)
    return np.column_stack([np.ones(len(columns)), centred / np.maximum(centred.std(axis=0), 1e-12)])


def _fit(design: Numbers, values: Numbers) -> Numbers:
    """Coefficients of the columns."""
    weights: Numbers = np.ones(len(values))
    found: Numbers = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        before, found = (
            found,
            np.asarray(np.linalg.lstsq(design * root[:, None], values * root, rcond=None)[0], np.float64),
        )
        left = np.abs(values - design @ found)
        scale = _NORMAL * float(np.median(left))
        if scale <= 1e-12 or np.abs(found - before).max() < 1e-9:
            break
        # Huber's weights; a residual of 0 must not divide.
        weights = np.minimum(1.0, _TUNING * scale / np.maximum(left, 1e-300))
    return np.asarray(found, np.float64)


def _medians(values: Numbers, places: NDArray[np.int64], size: int) -> Numbers:
    """The median of the values at each place."""
    order = np.lexsort((values, places))
    ordered, counts = values[order], np.bincount(places, minlength=size)
    begins = np.cumsum(counts) - counts
    # The two middle values of each place, which are one and the same of an odd number.
    return np.asarray((ordered[begins + (counts - 1) // 2] + ordered[begins + counts // 2]) / 2, np.float64)


def _errors(within: Numbers, counts: NDArray[np.int64], places: NDArray[np.int64], spread: float) -> Numbers:
    """Standard errors of effects; their spread stands for that of single observations."""
    several = counts[places] > 1
    free = int(several.sum()) - int((counts > 1).sum())
    own = within[several]
    # Too few repetitions say too little about the noise of one observation.
    enough = free >= max(FEWEST, len(counts) // 2)
    # Each replica's own median has taken a degree of freedom from its residuals.
    scale = _deviation(own) * np.sqrt(len(own) / free) if enough else spread
    return np.asarray(scale * np.where(counts > 1, _OF_MEDIAN, 1.0) / np.sqrt(counts), np.float64)


def _deviation(values: Numbers) -> float:
    """The standard deviation of many values, by their median absolute deviation."""
    return _NORMAL * float(np.median(np.abs(values - np.median(values))))


def _spread(values: Numbers) -> float:
    """The standard deviation of replicas' effects, of which up to half may be outliers: Qn.

    Of few values the median absolute deviation is so uncertain that it accuses three times as often
    as `WRONGLY` says (Rousseeuw and Croux, Alternatives to the Median Absolute Deviation, Journal
    of the American Statistical Association 88, 1993; factors for few values: Croux and Rousseeuw,
    Time-Efficient Algorithms for Two Highly Robust Estimators of Scale, 1992).
    """
    count = len(values)
    if count < 2:
        return 0.0
    half = count // 2 + 1
    correction = _OF_FEW.get(count) or count / (count + (1.4 if count % 2 else 3.8))
    return _OF_PAIRS * correction * _distance(np.sort(values), half * (half - 1) // 2)


def _distance(ordered: Numbers, place: int) -> float:
    """The distance of two values at a place, from 1, among those of all pairs.

    By halving what it may be: a list of the pairs of 4,096 replicas takes a quarter of a GB.
    """
    low, high = 0.0, float(ordered[-1] - ordered[0])
    own = np.arange(1, len(ordered) + 1)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if (np.searchsorted(ordered, ordered + middle, "right") - own).sum() >= place:
            high = middle
        else:
            low = middle
    return high


def _judged(effects: Numbers, deviations: Numbers, others: int) -> Marks:
    """The replicas that are slower by `LEAST`, and by more than deviations of this many others."""
    limit = -_student(1 - WRONGLY / len(effects), _EFFICIENCY * (others - 1)) * deviations
    return np.asarray((effects <= log(1 - LEAST)) & (effects < limit), np.bool_)


def habitual(found: Effects, replicas: NDArray[np.int64], values: Numbers) -> Marks:
    """The replicas of which more observations are slow than single events explain.

    Waits between trainings are not spread around a mean: most are short, and now and then one is
    long on any replica. The test is binomial, with the frequency among all other replicas (one
    more than observed, so that it is never 0), and accuses wrongly with `WRONGLY` at most.
    """
    from scipy.special import bdtrc  # noqa: PLC0415  (a fifth of the time to import this program)

    long = values - found.predicted <= log(1 - LEAST)
    own = np.bincount(np.searchsorted(found.replicas, replicas), long, len(found.replicas))
    elsewhere = (own.sum() - own + 1) / (len(values) - found.counts + 1)
    # `bdtrc(k, ...)` is the probability of more than k: at least `own` is more than one fewer.
    chance = np.where(own > 0, bdtrc(np.maximum(own - 1, 0), found.counts, np.minimum(elsewhere, 1.0)), 1.0)
    return np.asarray(chance < WRONGLY / len(found.replicas), np.bool_)


def _student(share: float, degrees: float) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415  (a fifth of the time to import this program)

    return float(stdtrit(max(1, degrees), share))
