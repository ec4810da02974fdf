"""Cubes of dark matter: particles counted in voxels, at four redshifts of one universe.

A lognormal model (Coles and Jones 1991) in place of the N-body simulations of CosmoFlow (Mathuriya
et al. 2018), whose schema it has: the four channels are redshifts, the targets four parameters.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from workloads.data.generators.streams import stream

# Linear theory of cosmic structure: the power spectrum of matter and its growth.
#
# Lengths are in Mpc/h, wave numbers k in h/Mpc, powers in (Mpc/h)^3.

SIGMA_RADIUS = 8.0
"""Radius in Mpc/h of the spheres whose spread of the density is sigma_8."""


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
    # The formula is 0 / 0 at k = 0, where its limit is 1.
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
    # The third k is that of dk = k d(ln k).
    variance = np.trapezoid(k**3 * _shape(k, cosmology) * window**2, logarithms) / (2 * np.pi**2)
    return float(cosmology.sigma_8**2 / variance)


REDSHIFTS = (0.0, 0.5, 1.5, 3.0)
CHANNELS = tuple(f"z = {redshift:g}" for redshift in REDSHIFTS)

LOWEST = Cosmology(0.25, 0.78, 0.9, 0.6)
HIGHEST = Cosmology(0.35, 0.95, 1.0, 0.8)
MIDDLE = Cosmology(0.3, 0.865, 0.95, 0.7)
"""Ends and middle of the parameters, uniform in between, as in CosmoFlow's data of 2019."""

SMOOTHING = 2.0
"""Radius in Mpc/h of the Gaussian that smooths the field."""

BOXES = {16: 128.0, 32: 256.0, 128: 128.0}
"""Side of the box in Mpc/h by voxels a side; for other sizes 128. CosmoFlow's cubes have 128 voxels
in 128 Mpc/h: 512^3 particles in a box of 512 Mpc/h, cut into 64."""

FIELD_BOX = 128.0
"""Side in Mpc/h of the cubes from which fields for generation are cut."""

MOST_COUNT = 32_767
"""Largest count: counts are 16-bit integers."""


def sample(seed: int, number: int, size: int) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """Make a cube of counts (n, n, n, 4), and its parameters (4,), each scaled to -1 to 1.

    The parameters are Omega_m, sigma_8, n_s and h.
    """
    rng = stream(seed, number)
    targets = rng.uniform(-1, 1, 4).astype(np.float32)
    return counts(rng, scaled(targets), size, BOXES.get(size, FIELD_BOX)), targets


def field_sample(seed: int, number: int, size: int) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """Make a sample of the middle parameters in a box of 128 Mpc/h, to learn their fields."""
    return counts(stream(seed, number), MIDDLE, size, FIELD_BOX), np.zeros(4, np.float32)


def scaled(targets: NDArray[np.float32]) -> Cosmology:
    """The cosmology of four numbers from -1 to 1."""
    lowest, highest = (np.array([ends.omega_m, ends.sigma_8, ends.n_s, ends.h]) for ends in (LOWEST, HIGHEST))
    omega_m, sigma_8, n_s, h = (lowest + (targets.astype(np.float64) + 1) / 2 * (highest - lowest)).tolist()
    return Cosmology(omega_m, sigma_8, n_s, h)


def counts(rng: np.random.Generator, cosmology: Cosmology, size: int, box: float) -> NDArray[np.int16]:
    """Draw the numbers of particles in each voxel, (n, n, n, 4): one a (Mpc/h)^3 on average.

    The Gaussian field g of the linear power spectrum grows by D(z); the density is
    exp(D g - D^2 sigma^2 / 2) of its mean, and the counts are Poisson numbers of it.
    """
    field = gaussian_field(rng, cosmology, size, box)
    variance = float(np.mean(np.square(field)))
    mean = (box / size) ** 3
    found = np.empty((size, size, size, len(REDSHIFTS)), np.int16)
    for channel, redshift in enumerate(REDSHIFTS):
        factor = growth(redshift, cosmology)
        density = mean * np.exp(factor * field - factor**2 * variance / 2)
        found[..., channel] = np.minimum(rng.poisson(density), MOST_COUNT)
    return found


def gaussian_field(rng: np.random.Generator, cosmology: Cosmology, size: int, box: float) -> NDArray[np.float64]:
    """Draw a Gaussian field (n, n, n) of the smoothed linear power spectrum, periodic in the box.

    White noise is multiplied by sqrt(P(k) / V) in Fourier space, V being a voxel's volume.
    """
    # White noise drawn in space, not in Fourier space, needs no care for the symmetry of a real
    # field.
    noise = scipy.fft.rfftn(rng.standard_normal((size, size, size)))
    along = 2 * np.pi * scipy.fft.fftfreq(size, box / size)
    last = 2 * np.pi * scipy.fft.rfftfreq(size, box / size)
    squares = along[:, None, None] ** 2 + along[None, :, None] ** 2 + last[None, None, :] ** 2
    amplitude = np.sqrt(power(np.sqrt(squares), cosmology) / (box / size) ** 3)
    amplitude *= np.exp(-squares * SMOOTHING**2 / 2)
    field: NDArray[np.float64] = scipy.fft.irfftn(noise * amplitude, s=(size, size, size))
    return field
