"""Laws of scaling, fitted to the rates of a series; the rate that each expects of the next size.

A size m is relative to the smallest run of the series, and so is a rate r. Every law is linear in
two parameters, which weighted least squares find; weights are 1 / variance of the rates.

| law | mode | linear form | parameter |
|---|---|---|---|
| Amdahl 1967 | strong | 1/r = f + (1 - f) / m | serial share f of the smallest run's time |
| Gustafson 1988 | weak | r = s + (1 - s) m | serial share s |
| communication | strong | 1/r = a / m + c log2 m | c / a: time added by each doubling |
| communication | weak | m/r = a + c log2 m | the same |

The latency of an all-reduce grows with log2 of its ranks (Thakur, Rabenseifner and Gropp 2005).
The scale of r is free, so that no law has to go through the smallest run. Intervals of parameters,
which are ratios, are Fieller's (1954), with Student's t, the scatter about the line and runs - 2
degrees of freedom.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Mode = Literal["weak", "strong"]

LEVEL = 0.975
"""Quantile of the ends of 95 % intervals."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class SizedRate:
    """The rate of one run, and its standard error; None if it is not known."""

    size: int
    rate: float
    error: float | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """A law fitted to a series.

    Ends of intervals are None if there are too few runs, or no bound.
    """

    law: str
    formula: str
    parameter: str
    """Meaning of `value`."""
    value: float
    low: float | None
    high: float | None
    scatter: float | None
    """Root mean square of the runs' relative distances from the law; None of two runs."""
    next_size: int
    """The size that the series would have next."""
    predicted: float
    """The rate that the law expects of it."""
    predicted_low: float | None
    predicted_high: float | None
    curve: tuple[tuple[float, float], ...]
    """Sizes and rates of the law from the smallest run to the next size, for figures."""


@dataclass(frozen=True, slots=True)
class _Law:
    """y(m, r) = b0 u(m) + b1 v(m), and the parameter b0 / (shared b0 + b1)."""

    name: str
    formula: str
    parameter: str
    terms: Callable[[Floats], tuple[Floats, Floats]]
    power: int
    """y = m^`power` / r, unless `direct`: then y = r."""
    direct: bool = False
    shared: int = 0

    def response(self, size: Floats, rate: Floats) -> Floats:
        return rate if self.direct else np.asarray(size**self.power / rate, float)

    def rate(self, size: float, response: float) -> float | None:
        if self.direct:
            return response
        return size**self.power / response if response > 0 else None


_LAWS: dict[Mode, tuple[_Law, ...]] = {
    "strong": (
        _Law("Amdahl", "1/r = f + (1 - f) / m", "serial share", lambda m: (np.ones_like(m), 1 / m), 0, shared=1),
        _Law("communication", "1/r = a / m + c log2 m", "added by each doubling", lambda m: (np.log2(m), 1 / m), 0),
    ),
    "weak": (
        _Law("Gustafson", "r = s + (1 - s) m", "serial share", lambda m: (np.ones_like(m), m), 0, True, shared=1),
        _Law(
            "communication", "m/r = a + c log2 m", "added by each doubling", lambda m: (np.log2(m), np.ones_like(m)), 1
        ),
    ),
}

CURVE_POINTS = 40


def fit_laws(mode: Mode, runs: Sequence[SizedRate]) -> tuple[Fit, ...]:
    """The laws of a mode; none of fewer than two sizes. Rates are above 0."""
    sizes = sorted({run.size for run in runs})
    if len(sizes) < 2:
        return ()
    return tuple(_fit(law, runs, sizes) for law in _LAWS[mode])


def _fit(law: _Law, runs: Sequence[SizedRate], sizes: Sequence[int]) -> Fit:
    unit = max(run.rate for run in runs if run.size == sizes[0])
    size = np.array([run.size / sizes[0] for run in runs], float)
    rate = np.array([run.rate / unit for run in runs], float)
    relative = _relative_errors(runs)
    response = law.response(size, rate)
    # A rate and its inverse have the same relative error, so one weight serves every form. Only the
    # ratios of the errors matter: their scale comes from the scatter about the line.
    weight = 1 / (relative * response)
    design = np.column_stack(law.terms(size)) * weight[:, None]
    found, _, _, _ = np.linalg.lstsq(design, response * weight, rcond=None)
    residuals = response * weight - design @ found
    freedom = len(runs) - 2
    variance = float(residuals @ residuals) / freedom if freedom else None
    inverse = np.linalg.pinv(design.T @ design)
    quantile = float(stdtrit(freedom, LEVEL)) if freedom else None
    # The parameter is a ratio of two sums of the coefficients.
    above, below = np.array([1.0, 0.0]), np.array([law.shared, 1.0])
    low, high = _fieller(above, below, found, inverse * variance, quantile) if quantile and variance else (None, None)
    ahead = sizes[-1] * sizes[-1] // sizes[-2]
    place = ahead / sizes[0]
    row = np.array(law.terms(np.array([place])), float).ravel()
    expected = float(row @ found)
    least: float | None = None
    most: float | None = None
    if quantile and variance is not None:
        # The interval is for one more run: it has its own scatter besides the uncertainty of the
        # line.
        own = float(np.median(relative)) * expected
        half = quantile * sqrt(variance * (float(row @ inverse @ row) + own * own))
        least, most = (law.rate(place, value) for value in (expected - half, expected + half))
        # An inverse is largest where the rate is least.
        least, most = (least, most) if law.direct else (most, least)
    grid = np.geomspace(1, place, CURVE_POINTS)
    curve = np.column_stack(law.terms(grid)) @ found
    rates = [(float(m * sizes[0]), law.rate(float(m), float(y))) for m, y in zip(grid, curve, strict=True)]
    return Fit(
        law.name,
        law.formula,
        law.parameter,
        float(above @ found / (below @ found)),
        low,
        high,
        sqrt(float(np.mean((response / (np.column_stack(law.terms(size)) @ found) - 1) ** 2))) if freedom else None,
        ahead,
        (law.rate(place, expected) or 0.0) * unit,
        None if least is None else least * unit,
        None if most is None else most * unit,
        tuple((m, value * unit) for m, value in rates if value is not None),
    )


def _relative_errors(runs: Sequence[SizedRate]) -> Floats:
    """The relative errors of all rates; equal ones if that of any run is not known, or 0."""
    known = [run.error / run.rate for run in runs if run.error]
    return np.array(known) if len(known) == len(runs) else np.ones(len(runs))


def _fieller(
    above: Floats, below: Floats, found: Floats, covariance: Floats, quantile: float
) -> tuple[float | None, float | None]:
    """The interval of a ratio of two linear functions of estimates; open ends if it has no bound.

    Its ends solve (A - x B)^2 = t^2 var(A - x B).
    """
    top, bottom = float(above @ found), float(below @ found)
    own, mixed, under = (
        float(one @ covariance @ other) * quantile**2 for one, other in ((above, above), (above, below), (below, below))
    )
    square, line, constant = bottom**2 - under, top * bottom - mixed, top**2 - own
    inside = line**2 - square * constant
    # The denominator cannot be told from 0, so the ratio has no bound on one side at least.
    if square <= 0 or inside < 0:
        return None, None
    return (line - sqrt(inside)) / square, (line + sqrt(inside)) / square
