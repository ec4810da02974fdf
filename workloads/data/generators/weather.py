"""Global weather on a grid of latitudes and longitudes: 16 channels, and boxes of extreme events.

It imitates ExtremeWeather (Racah et al. 2017): output of the climate model CAM5, 25 km a pixel.
Row 0 is the south pole's side; columns are longitudes eastwards, periodic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from workloads.data.generators.events import Canvas, draw_events
from workloads.data.generators.streams import rounded, stream

MOST_BOXES = 15
"""Rows of boxes of an image; unused ones are -1."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A variable of the model: its calm state and its weather, in its own unit."""

    name: str
    unit: str
    equator: float
    pole: float
    """Zonal means; between them with sin^2 of the latitude."""
    spread: float
    """Standard deviation of the weather."""
    patterns: tuple[float, float, float, float]
    """Weights of the four patterns in it."""
    positive: bool = False


CHANNELS_OF_WEATHER = (
    Channel("PRECT", "m/s", 4e-8, 1e-8, 2e-8, (-0.4, 0.1, 0.8, 0.0), positive=True),
    Channel("PS", "Pa", 1.005e5, 9.85e4, 700.0, (1.0, -0.2, 0.0, 0.1)),
    Channel("PSL", "Pa", 1.012e5, 1.006e5, 700.0, (1.0, -0.1, -0.1, 0.0)),
    Channel("QREFHT", "kg/kg", 0.017, 0.001, 0.0015, (0.0, 0.5, 0.8, 0.0), positive=True),
    Channel("T200", "K", 219.0, 216.0, 3.0, (-0.3, 0.6, 0.0, 0.5)),
    Channel("T500", "K", 268.0, 236.0, 3.5, (0.3, 0.9, 0.1, 0.2)),
    Channel("TMQ", "kg/m2", 42.0, 4.0, 5.0, (-0.2, 0.3, 1.0, 0.0), positive=True),
    Channel("TREFHT", "K", 300.0, 252.0, 4.0, (0.1, 1.0, 0.2, 0.0)),
    Channel("TS", "K", 301.0, 253.0, 4.0, (0.0, 1.0, 0.2, -0.1)),
    Channel("U850", "m/s", -4.0, 6.0, 6.0, (0.3, 0.2, 0.0, 0.9)),
    Channel("UBOT", "m/s", -3.0, 4.0, 4.0, (0.2, 0.1, 0.0, 0.9)),
    Channel("V850", "m/s", 0.0, 0.0, 5.0, (0.2, 0.5, 0.2, -0.8)),
    Channel("VBOT", "m/s", 0.0, 0.0, 3.5, (0.2, 0.4, 0.2, -0.8)),
    Channel("Z1000", "m", 105.0, 55.0, 55.0, (1.0, -0.1, 0.0, 0.0)),
    Channel("Z200", "m", 12400.0, 11100.0, 110.0, (0.7, 0.7, 0.0, 0.3)),
    Channel("ZBOT", "m", 66.0, 56.0, 1.2, (0.1, 1.0, 0.1, 0.0)),
)

CHANNELS = tuple(channel.name for channel in CHANNELS_OF_WEATHER)
UNITS = tuple(channel.unit for channel in CHANNELS_OF_WEATHER)

EASTWARD = ("U850", "UBOT")
"""Channels whose sign changes if east and west change places."""

WAVE_NUMBER, STEEPNESS = 8.0, 3.0
"""Red noise: amplitudes fall as (1 + (k / 8)^2)^(-3/2), k being waves around the globe."""

WHITE_SHARE = 0.2
"""Spread of the white part, in spreads of the weather."""

STEPS = 1024
"""Values are whole multiples of a power of two, of this many or more in a spread."""


def sample(seed: int, number: int, rows: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """An image (16, rows, 3 rows / 2), and its boxes (15, 5).

    A box is ymin, xmin, ymax, xmax, in pixels, and its class: 0 tropical depression, 1 tropical
    cyclone, 2 extratropical cyclone, 3 atmospheric river.
    """
    rng = stream(seed, number)
    columns = rows * 3 // 2
    canvas = Canvas(rows, columns, CHANNELS)
    found = draw_events(rng, canvas, MOST_BOXES)
    boxes = np.full((MOST_BOXES, 5), -1, np.int32)
    boxes[: len(found)] = np.array(found, np.int32).reshape(-1, 5)
    return _calm_and_weather(rng, canvas), boxes


def _calm_and_weather(rng: np.random.Generator, canvas: Canvas) -> NDArray[np.float32]:
    rows, columns = canvas.rows, canvas.columns
    patterns = red_noise(rng, 4, rows, columns)
    share = np.sin(canvas.latitudes())[:, None] ** 2
    image = np.empty((len(CHANNELS), rows, columns), np.float32)
    for number, channel in enumerate(CHANNELS_OF_WEATHER):
        weights = np.array(channel.patterns) / np.linalg.norm(channel.patterns)
        weather = np.tensordot(weights, patterns, 1) + WHITE_SHARE * rng.standard_normal((rows, columns))
        values = channel.equator + (channel.pole - channel.equator) * share + channel.spread * weather
        values += canvas.drawn[number]
        if channel.positive:
            np.maximum(values, 0.0, out=values)
        image[number] = rounded(values, 2.0 ** np.floor(np.log2(channel.spread / STEPS)))
    return image


def red_noise(rng: np.random.Generator, count: int, rows: int, columns: int) -> NDArray[np.float64]:
    """Patterns (count, rows, columns) of variance 1, smooth within an eighth of the globe."""
    white = scipy.fft.rfft2(rng.standard_normal((count, rows, columns)))
    # As many waves from pole to pole make half as many around the globe.
    north = 2 * scipy.fft.fftfreq(rows, 1 / rows)
    east = scipy.fft.rfftfreq(columns, 1 / columns)
    amplitude = (1 + (north[:, None] ** 2 + east[None, :] ** 2) / WAVE_NUMBER**2) ** (-STEEPNESS / 2)
    noise = scipy.fft.irfft2(white * amplitude, s=(rows, columns))
    # Waves other than the first and the last stand for their negatives, too.
    times = np.where((east == 0) | (east == columns / 2), 1.0, 2.0)
    found: NDArray[np.float64] = noise / np.sqrt(np.sum(times * amplitude**2) / (rows * columns))
    return found
