"""Linear theory of cosmic structure: the power spectrum of matter and its growth.

Lengths are in Mpc/h, wave numbers k in h/Mpc, powers in (Mpc/h)^3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SIGMA_RADIUS = 8.0
"""sigma_8 is the spread of the density in spheres of this radius, in Mpc/h."""


@dataclass(frozen=True, slots=True)
class Cosmology:
    """A flat universe of cold matter and a cosmological constant."""

    omega_m: float
    """Share of matter in the critical density today."""
    sigma_8: float
    """Spread of the linear density in spheres of 8 Mpc/h today."""
    n_s: float
    """Spectral index of the primordial fluctuations."""
    h: float
    """Hubble's constant in units of 100 km/s/Mpc."""


def transfer(wave_numbers: NDArray[np.float64], cosmology: Cosmology) -> NDArray[np.float64]:
    """The transfer function of cold dark matter (BBKS: Bardeen et al. 1986, equation G3).

    q = k / Gamma with the shape parameter Gamma = Omega_m h, for k in h/Mpc.
    """
    q = np.maximum(wave_numbers, 1e-12) / (cosmology.omega_m * cosmology.h)
    inner = 1 + 3.89 * q + (16.1 * q) ** 2 + (5.46 * q) ** 3 + (6.71 * q) ** 4
    found: NDArray[np.float64] = np.log1p(2.34 * q) / (2.34 * q) * inner**-0.25
    return found


def power(wave_numbers: NDArray[np.float64], cosmology: Cosmology) -> NDArray[np.float64]:
    """The linear power spectrum today: A k^n_s T(k)^2, with A from sigma_8; 0 at k = 0."""
    found: NDArray[np.float64] = _amplitude(cosmology) * _shape(wave_numbers, cosmology)
    return found


def growth(redshift: float, cosmology: Cosmology) -> float:
    """The linear growth factor, 1 today (Carroll, Press and Turner 1992, equation 29)."""
    return _suppression(redshift, cosmology) / (1 + redshift) / _suppression(0.0, cosmology)


def _suppression(redshift: float, cosmology: Cosmology) -> float:
    """The growth relative to a universe of matter alone."""
    matter, vacuum = cosmology.omega_m * (1 + redshift) ** 3, 1 - cosmology.omega_m
    omega, rest = matter / (matter + vacuum), vacuum / (matter + vacuum)
    return float(2.5 * omega / (omega ** (4 / 7) - rest + (1 + omega / 2) * (1 + rest / 70)))


def _shape(wave_numbers: NDArray[np.float64], cosmology: Cosmology) -> NDArray[np.float64]:
    found: NDArray[np.float64] = wave_numbers**cosmology.n_s * transfer(wave_numbers, cosmology) ** 2
    return found


@lru_cache(maxsize=64)
def _amplitude(cosmology: Cosmology) -> float:
    """The factor that gives sigma_8: the integral of k^2 P(k) W(k R)^2 / (2 pi^2) over k.

    W(x) = 3 (sin x - x cos x) / x^3 is the Fourier transform of a sphere.
    """
    logarithms = np.linspace(np.log(1e-4), np.log(1e2), 4096)
    k = np.exp(logarithms)
    x = k * SIGMA_RADIUS
    window = 3 * (np.sin(x) - x * np.cos(x)) / x**3
    variance = np.trapezoid(k**3 * _shape(k, cosmology) * window**2, logarithms) / (2 * np.pi**2)
    return float(cosmology.sigma_8**2 / variance)
