"""Calorimeter images of proton collisions: signal with many jets, or background with few.

It imitates the search for R-parity-violating supersymmetry of HPC AI500's data: gluinos that decay
to many jets, against multi-jet events of QCD. Both have the same spectrum of total energy: only the
number, sharing and directions of the jets differ.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workloads.data.generators.streams import rounded, stream

CHANNELS = ("energy", "electromagnetic fraction", "tracks")

ETA_RANGE = 2.5
"""Largest pseudorapidity that is seen, either way, as in the published images; azimuths all are."""

LEAST_ENERGY, SPECTRAL_INDEX = 900.0, 4.0
"""Parameters of the total energy, 900 GeV (1 - u)^(-1/4), whose density falls as E^-5."""

CONSTITUENTS, ENERGY_SCALE = 4.0, 20.0
"""Parameters of the particles of a jet of energy E: 4 + Poisson(4 ln(1 + E / 20 GeV))."""

CONE_ENERGY = 10.0
"""Energy in GeV by which angles from a jet's axis scale: they are smaller by sqrt(10 GeV / E)."""

SOFT_PARTICLES, SOFT_ENERGY = 90, 1.0
"""Number of particles of the underlying event, and their mean energy in GeV."""

TRACK_PROBABILITY = 0.62
"""Share of charged particles."""

ELECTROMAGNETIC = (1.2, 2.0)
"""Parameters of the beta distribution of a particle's electromagnetic fraction."""

SELECTION_CELLS, SELECTION_ENERGY, SELECTION_COUNT, SELECTION_SHARE = 16, 30.0, 7, 0.35
"""Terms of the selection: 7 of 16 x 16 cells over 30 GeV, the largest below 35 % of the sum."""

ENERGY_STEP, FRACTION_STEP = 2.0**-10, 2.0**-12
"""Steps of energies, about 1 MeV, and of fractions, which are whole multiples of them."""


@dataclass(frozen=True, slots=True)
class Process:
    """A physical process."""

    extra_jets: float
    """Mean number of jets beyond two."""
    sharing: float
    """Parameter of the Dirichlet distribution that shares the energy: larger is more even."""
    eta_spread: float
    """Standard deviation of the jets' pseudorapidities."""
    phi_spread: float
    """Standard deviation of their azimuths from two opposite directions, in radians."""
    cone: float
    """Scale of the Cauchy distribution of angles from a jet's axis, in radians, at 10 GeV."""


BACKGROUND = Process(1.2, 1.3, 1.1, 0.5, 0.105)
SIGNAL = Process(3.0, 3.0, 0.8, 1.3, 0.21)


@dataclass(frozen=True, slots=True)
class Particles:
    """The particles of a collision, (P,) each: directions, energies in GeV, fractions, charges."""

    eta: NDArray[np.float64]
    phi: NDArray[np.float64]
    energy: NDArray[np.float64]
    electromagnetic: NDArray[np.float64]
    charged: NDArray[np.bool_]


def sample(seed: int, number: int, size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Make an image (size, size, 3), and a target (2,): 1 for signal, 1 if the selection takes it.

    Rows are pseudorapidity, columns azimuth. Even numbers are background, odd ones signal.
    """
    label = number % 2
    found = collide(stream(seed, number), SIGNAL if label else BACKGROUND)
    return image(found, size), np.array([label, selected(found)], np.float32)


def collide(rng: np.random.Generator, process: Process) -> Particles:
    """Draw the particles of one collision."""
    jets = 2 + int(rng.poisson(process.extra_jets))
    # Random numbers may be 0 and never 1, so that their difference from 1 can take this power.
    total = LEAST_ENERGY * (1 - rng.random()) ** (-1 / SPECTRAL_INDEX)
    energies = total * rng.dirichlet(np.full(jets, process.sharing))
    etas = rng.normal(0, process.eta_spread, jets)
    # Momentum is conserved: jets come in two opposite directions.
    sides = rng.uniform(-np.pi, np.pi) + np.pi * (np.arange(jets) % 2)
    phis = sides + rng.normal(0, process.phi_spread, jets)
    counts = CONSTITUENTS + rng.poisson(CONSTITUENTS * np.log1p(energies / ENERGY_SCALE))
    jet = np.repeat(np.arange(jets), counts.astype(np.int64))
    weights = rng.exponential(size=len(jet))
    # Shares of the jet's energy, which sum to it.
    energy = energies[jet] * weights / np.bincount(jet, weights, jets)[jet]
    angle = np.abs(process.cone * np.sqrt(CONE_ENERGY / energy) * rng.standard_cauchy(len(jet)))
    around = rng.uniform(0, 2 * np.pi, len(jet))
    soft = SOFT_PARTICLES
    particles = len(jet) + soft
    return Particles(
        np.concatenate([etas[jet] + angle * np.cos(around), rng.uniform(-ETA_RANGE, ETA_RANGE, soft)]),
        np.concatenate([phis[jet] + angle * np.sin(around), rng.uniform(-np.pi, np.pi, soft)]),
        np.concatenate([energy, rng.exponential(SOFT_ENERGY, soft)]),
        rng.beta(*ELECTROMAGNETIC, particles),
        rng.random(particles) < TRACK_PROBABILITY,
    )


def image(particles: Particles, size: int) -> NDArray[np.float32]:
    """Draw the cells' energies in GeV, electromagnetic fractions and tracks, (S, S, 3)."""
    seen, cells = _cells(particles, size)
    energy = rounded(_summed(cells, particles.energy[seen], size), ENERGY_STEP)
    part = _summed(cells, (particles.energy * particles.electromagnetic)[seen], size)
    fraction = np.divide(part, energy, out=np.zeros_like(part), where=energy > 0)
    tracks = _summed(cells, particles.charged[seen].astype(np.float64), size)
    channels = (energy, rounded(np.minimum(fraction, 1.0), FRACTION_STEP), tracks.astype(np.float32))
    return np.stack([channel.reshape(size, size) for channel in channels], axis=-1)


def selected(particles: Particles) -> bool:
    """True if the selection on high-level features takes the collision (`passSR`)."""
    seen, cells = _cells(particles, SELECTION_CELLS)
    energy = _summed(cells, particles.energy[seen], SELECTION_CELLS)
    many = np.count_nonzero(energy > SELECTION_ENERGY) >= SELECTION_COUNT
    return bool(many and energy.max() < SELECTION_SHARE * energy.sum())


def _cells(particles: Particles, size: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Flag the particles that are seen, and give the cells of these."""
    seen = np.abs(particles.eta) < ETA_RANGE
    rows = (particles.eta[seen] + ETA_RANGE) / (2 * ETA_RANGE) * size
    columns = np.mod(particles.phi[seen] / (2 * np.pi) + 0.5, 1.0) * size
    limit = size - 1
    return seen, np.minimum(rows.astype(np.int64), limit) * size + np.minimum(columns.astype(np.int64), limit)


def _summed(cells: NDArray[np.int64], values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    return np.bincount(cells, values, size * size).astype(np.float64, copy=False)
