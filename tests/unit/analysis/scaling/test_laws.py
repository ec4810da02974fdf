"""Laws of scaling on planted series, against a plain reference."""

import numpy as np
import pytest
from scipy import optimize, stats

from analysis.results.scaling.laws import Mode, SizedRate, fit_laws

SIZES = (1, 2, 4, 8, 16)
TRUTH = {
    ("strong", "Amdahl"): lambda m, p: 1 / (p + (1 - p) / m),
    ("strong", "communication"): lambda m, p: 1 / (1 / m + p * np.log2(m)),
    ("weak", "Gustafson"): lambda m, p: p + (1 - p) * m,
    ("weak", "communication"): lambda m, p: m / (1 + p * np.log2(m)),
}


def planted(mode: Mode, law: str, value: float, noise: float = 0.0, seed: int = 0, first: int = 1) -> list[SizedRate]:
    """A series that follows a law, with relative noise."""
    rng = np.random.default_rng(seed)
    rates = [1e12 * TRUTH[mode, law](m, value) * (1 + noise * rng.standard_normal()) for m in SIZES]
    return [SizedRate(first * m, rate, noise * rate) for m, rate in zip(SIZES, rates, strict=True)]


@pytest.mark.parametrize(("mode", "law"), TRUTH)
def test_a_series_without_noise_gives_its_law_and_the_next_size(mode: Mode, law: str) -> None:
    fits = fit_laws(mode, planted(mode, law, 0.05, first=8))
    (fit,) = (fit for fit in fits if fit.law == law)
    assert fit.value == pytest.approx(0.05)
    assert fit.scatter == pytest.approx(0, abs=1e-9)
    assert fit.next_size == 256
    assert fit.predicted == pytest.approx(1e12 * TRUTH[mode, law](32, 0.05))
    assert fit.curve[0] == pytest.approx((8, 1e12))
    assert fit.curve[-1] == pytest.approx((256, fit.predicted))
    (other,) = (fit for fit in fits if fit.law != law)
    assert other.scatter is not None
    assert other.scatter > 1e-3, "the other law does not fit"


@pytest.mark.parametrize(("mode", "law"), TRUTH)
def test_intervals_hold_the_truth_as_often_as_they_say(mode: Mode, law: str) -> None:
    inside = ahead = 0
    for seed in range(1000):
        (fit,) = (fit for fit in fit_laws(mode, planted(mode, law, 0.05, 0.01, seed)) if fit.law == law)
        assert None not in (fit.low, fit.high, fit.predicted_low, fit.predicted_high)
        inside += (fit.low or 0) <= 0.05 <= (fit.high or 0)
        following = (
            1e12 * TRUTH[mode, law](32, 0.05) * (1 + 0.01 * np.random.default_rng(5000 + seed).standard_normal())
        )
        ahead += (fit.predicted_low or 0) <= following <= (fit.predicted_high or 0)
    assert inside == pytest.approx(950, abs=20), "three standard deviations of 1,000 draws"
    assert ahead == pytest.approx(950, abs=20)


def test_the_fit_agrees_with_a_plain_reference() -> None:
    runs = planted("strong", "Amdahl", 0.08, 0.02, 7)
    size, rate = (np.array([getattr(run, name) for run in runs]) for name in ("size", "rate"))
    (found, covariance) = optimize.curve_fit(
        lambda m, scale, share: (share + (1 - share) / m) / scale,
        size,
        1e12 / rate,
        p0=(1, 0.05),
        sigma=1e12 * 0.02 / rate,
    )
    fit = fit_laws("strong", runs)[0]
    assert fit.value == pytest.approx(found[1], rel=1e-5)
    half = stats.t.ppf(0.975, len(runs) - 2) * np.sqrt(covariance[1, 1])
    assert fit.low is not None
    assert fit.high is not None
    assert (fit.high - fit.low) / 2 == pytest.approx(half, rel=0.02), "nearly linear here"


def test_errors_weigh_and_equal_ones_stand_in_for_unknown() -> None:
    runs = planted("strong", "Amdahl", 0.1)
    assert runs[0].error == 0.0
    wild = [*runs[:-1], SizedRate(16, 2 * runs[-1].rate, 2 * runs[-1].rate)]
    trusted = [SizedRate(run.size, run.rate, 1e-4 * run.rate) for run in wild[:-1]]
    assert fit_laws("strong", [*trusted, wild[-1]])[0].value == pytest.approx(0.1, rel=1e-3)
    assert fit_laws("strong", wild)[0].value < 0.08


def test_too_few_runs_have_a_line_and_no_interval() -> None:
    one, two, *_ = planted("weak", "Gustafson", 0.1)
    assert fit_laws("weak", [one, one]) == ()
    fit = fit_laws("weak", [one, two])[0]
    assert fit.value == pytest.approx(0.1)
    assert (fit.low, fit.high, fit.scatter, fit.predicted_low, fit.predicted_high) == (None,) * 5


def test_a_share_without_a_bound_has_no_interval() -> None:
    runs = [SizedRate(m, rate) for m, rate in zip(SIZES, (1e9, 9e9, 1e9, 9e9, 1e9), strict=True)]
    fit = fit_laws("strong", runs)[0]
    assert (fit.low, fit.high) == (None, None)
    assert fit.predicted_high is None, "the line goes below a time of zero"
