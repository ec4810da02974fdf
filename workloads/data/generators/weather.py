"""Global weather on a grid of latitudes and longitudes: 16 channels, and boxes of extreme events.

It imitates ExtremeWeather (Racah et al. 2017): output of the climate model CAM5, 25 km a pixel.
Row 0 is the south pole's side; columns are longitudes eastwards, periodic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from workloads.data.generators.streams import rounded, stream

# Extreme events drawn into weather: vortices of three kinds, and filaments of moisture.
#
# Lengths are pixels of a grid of 768 rows, and shrink with the grid. Strengths are chosen: those of
# strong but usual events.

FULL_ROWS = 768

MOST_OVERLAP = 0.05
"""Largest intersection over union of the boxes of two events."""

ATTEMPTS = 20
"""Number of places that are tried for an event."""

Box = tuple[int, int, int, int, int]
"""Box: ymin, xmin, ymax, xmax in pixels, and class."""

WINDS = (("U850", "V850", 1.0), ("UBOT", "VBOT", 0.7))
"""Channels of eastward and northward wind at two heights, and their share of an event's wind."""


@dataclass(frozen=True, slots=True)
class Vortex:
    """A kind of cyclone. Strengths are at its centre, in the units of the channels."""

    number: int
    mean: float
    """Mean number of events an image."""
    radius: tuple[float, float]
    """Range of half of the box's side, in pixels at 768 rows."""
    latitude: tuple[float, float]
    """Range of degrees from the equator, north or south."""
    wind: float
    """Largest wind, in m/s."""
    strengths: Mapping[str, float]


DEPRESSION = Vortex(
    0,
    1.2,
    (16, 24),
    (6, 28),
    14.0,
    {
        "PSL": -900.0,
        "PS": -900.0,
        "Z1000": -75.0,
        "TMQ": 14.0,
        "PRECT": 1.2e-7,
        "QREFHT": 0.002,
        "T500": 1.5,
        "T200": 2.0,
    },
)
CYCLONE = Vortex(
    1,
    1.2,
    (24, 40),
    (8, 32),
    42.0,
    {
        "PSL": -4500.0,
        "PS": -4500.0,
        "Z1000": -370.0,
        "TMQ": 24.0,
        "PRECT": 4e-7,
        "QREFHT": 0.003,
        "T500": 7.0,
        "T200": 11.0,
        "Z200": 120.0,
    },
)
EXTRATROPICAL = Vortex(
    2,
    1.65,
    (55, 95),
    (35, 62),
    27.0,
    {
        "PSL": -3200.0,
        "PS": -3200.0,
        "Z1000": -260.0,
        "TMQ": 5.0,
        "PRECT": 1e-7,
        "T500": -11.0,
        "TREFHT": -5.0,
        "TS": -3.0,
        "Z200": -380.0,
        "ZBOT": -1.5,
    },
)
VORTICES = (DEPRESSION, CYCLONE, EXTRATROPICAL)

RIVER, RIVER_MEAN, RIVER_LENGTH, RIVER_WIDTH = 3, 1.25, (220.0, 380.0), (13.0, 20.0)
"""Class of an atmospheric river, events an image, length, and half of its box's margin."""
RIVER_LATITUDE, RIVER_WIND = (16.0, 40.0), 20.0
RIVER_STRENGTHS: Mapping[str, float] = {"TMQ": 26.0, "PRECT": 1.8e-7, "QREFHT": 0.004, "T500": 2.0, "TREFHT": 3.0}


@dataclass
class Canvas:
    """A grid, and the values that events add to its channels."""

    rows: int
    columns: int
    channels: Sequence[str]
    drawn: NDArray[np.float64] = field(init=False)
    """Added values, (C, rows, columns)."""

    def __post_init__(self) -> None:
        self.drawn = np.zeros((len(self.channels), self.rows, self.columns))

    @property
    def scale(self) -> float:
        """Pixels of this grid for one of a grid of 768 rows."""
        return self.rows / FULL_ROWS

    def latitudes(self) -> NDArray[np.float64]:
        """The latitudes of the rows, in radians, from the south to the north."""
        centres: NDArray[np.float64] = (np.arange(self.rows) + 0.5) / self.rows
        return (centres - 0.5) * np.pi

    def row_of(self, degrees: float) -> float:
        """The place of a latitude among the rows."""
        return (degrees / 180 + 0.5) * self.rows

    def add(self, name: str, place: tuple[slice, slice], values: NDArray[np.float64]) -> None:
        """Add values to a part of a channel."""
        self.drawn[self.channels.index(name)][place] += values


def draw_events(rng: np.random.Generator, canvas: Canvas, most: int) -> list[Box]:
    """Draw a random number of events of each class; give their boxes."""
    boxes: list[Box] = []
    counts = rng.poisson([*(kind.mean for kind in VORTICES), RIVER_MEAN])
    # The large ones first: the small ones find room between them.
    for number in np.repeat([3, 2, 1, 0], counts[::-1]).tolist():
        event = _river if number == RIVER else _vortex
        for _ in range(ATTEMPTS):
            box, paint = event(rng, canvas, number)
            if len(boxes) < most and all(overlap(box, other) <= MOST_OVERLAP for other in boxes):
                paint()
                boxes.append(box)
                break
    return boxes


def overlap(one: Box, other: Box) -> float:
    """The intersection over union of two boxes."""
    height = min(one[2], other[2]) - max(one[0], other[0])
    width = min(one[3], other[3]) - max(one[1], other[1])
    common = max(height, 0) * max(width, 0)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return common / (areas - common)


Painted = tuple[Box, Callable[[], None]]
"""An event's box, and the function that draws it."""

Event = Callable[[np.random.Generator, Canvas, int], Painted]


def _vortex(rng: np.random.Generator, canvas: Canvas, number: int) -> Painted:
    """Make a round low with cyclonic wind, anywhere in its latitudes."""
    kind = VORTICES[number]
    north = 1.0 if rng.random() < 0.5 else -1.0
    row = canvas.row_of(north * rng.uniform(*kind.latitude))
    radius = canvas.scale * rng.uniform(*kind.radius)
    # Away from the edges: boxes do not wrap around the globe.
    column, strength = rng.uniform(radius, canvas.columns - radius), rng.uniform(0.75, 1.25)

    def paint() -> None:
        place, y, x = _patch(canvas, (row - 2 * radius, row + 2 * radius), (column - 2 * radius, column + 2 * radius))
        dy, dx = (y - row) / radius, (x - column) / radius
        distance = np.hypot(dy, dx)
        for name, value in kind.strengths.items():
            canvas.add(name, place, strength * value * np.exp(-2 * distance**2))
        # Speed over radius: the wind is largest at 0.4 radii, and near the centre that of a solid
        # body's rotation.
        speed = strength * kind.wind / 0.4 * np.exp(0.5 * (1 - (distance / 0.4) ** 2))
        for eastward, northward, share in WINDS:
            canvas.add(eastward, place, -north * share * speed * dy)
            canvas.add(northward, place, north * share * speed * dx)

    return _box(canvas, (row - radius, row + radius), (column - radius, column + radius), number), paint


def _river(rng: np.random.Generator, canvas: Canvas, number: int) -> Painted:
    """Make a bent filament towards the pole and the east, with wind along it."""
    north = 1.0 if rng.random() < 0.5 else -1.0
    length, width = canvas.scale * rng.uniform(*RIVER_LENGTH), canvas.scale * rng.uniform(*RIVER_WIDTH)
    angle, bend, strength = rng.uniform(0.25, 0.9), length * rng.uniform(-0.2, 0.2), rng.uniform(0.75, 1.25)
    along = np.linspace(0, 1, 48)
    bow = 4 * bend * along * (1 - along)
    rows = canvas.row_of(north * rng.uniform(*RIVER_LATITUDE)) + north * (
        length * along * np.sin(angle) + bow * np.cos(angle)
    )
    columns = length * along * np.cos(angle) - bow * np.sin(angle)
    columns += rng.uniform(width - columns.min(), canvas.columns - width - columns.max())

    def paint() -> None:
        reach = 2.5 * width
        place, y, x = _patch(
            canvas, (rows.min() - reach, rows.max() + reach), (columns.min() - reach, columns.max() + reach)
        )
        squares = (y[..., None] - rows) ** 2 + (x[..., None] - columns) ** 2
        nearest = squares.argmin(axis=-1)
        profile = strength * np.exp(-squares.min(axis=-1) / width**2)
        for name, value in RIVER_STRENGTHS.items():
            canvas.add(name, place, value * profile)
        eastward, northward = np.gradient(columns), np.gradient(rows)
        speed = RIVER_WIND / np.hypot(eastward, northward)
        for east, northerly, share in WINDS:
            canvas.add(east, place, share * profile * (speed * eastward)[nearest])
            canvas.add(northerly, place, share * profile * (speed * northward)[nearest])

    ends = (rows.min() - width, rows.max() + width), (columns.min() - width, columns.max() + width)
    return _box(canvas, *ends, number), paint


Ends = tuple[float, float]
Places = NDArray[np.floating[Any]]


def _patch(canvas: Canvas, rows: Ends, columns: Ends) -> tuple[tuple[slice, slice], Places, Places]:
    """Cut a part of the grid: slices, and rows (h, 1) and columns (1, w) of its pixels' centres."""
    top, bottom = max(int(rows[0]), 0), min(int(rows[1]) + 1, canvas.rows)
    left, right = max(int(columns[0]), 0), min(int(columns[1]) + 1, canvas.columns)
    y, x = np.arange(top, bottom)[:, None] + 0.5, np.arange(left, right)[None, :] + 0.5
    return (slice(top, bottom), slice(left, right)), y, x


def _box(canvas: Canvas, rows: Ends, columns: Ends, number: int) -> Box:
    """Make a box of whole pixels, inside the image and not empty."""
    top, left = min(max(round(rows[0]), 0), canvas.rows - 2), min(max(round(columns[0]), 0), canvas.columns - 2)
    bottom, right = (
        min(max(round(rows[1]), top + 2), canvas.rows),
        min(max(round(columns[1]), left + 2), canvas.columns),
    )
    return top, left, bottom, right, number


MOST_BOXES = 15
"""Number of rows of boxes of an image; unused ones are -1."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel of the images, in its own unit: its calm state, and its weather."""

    name: str
    unit: str
    equator: float
    pole: float
    """Zonal mean at the pole; between equator and pole it follows sin^2 of the latitude."""
    spread: float
    """Standard deviation of the weather."""
    patterns: tuple[float, float, float, float]
    """Weights of the four patterns in the weather."""
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
"""Parameters of red noise: amplitudes fall as (1 + (k / 8)^2)^(-3/2), k in waves a globe."""

WHITE_SHARE = 0.2
"""Spread of the white part, in spreads of the weather."""

STEPS = 1024
"""Least number of steps in a spread: values are whole multiples of a power of two."""


def sample(seed: int, number: int, rows: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Make an image (16, rows, 3 rows / 2), and its boxes (15, 5).

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
    """Draw patterns (count, rows, columns) of variance 1, smooth within an eighth of the globe."""
    white = scipy.fft.rfft2(rng.standard_normal((count, rows, columns)))
    # As many waves from pole to pole make half as many around the globe.
    north = 2 * scipy.fft.fftfreq(rows, 1 / rows)
    east = scipy.fft.rfftfreq(columns, 1 / columns)
    amplitude = (1 + (north[:, None] ** 2 + east[None, :] ** 2) / WAVE_NUMBER**2) ** (-STEEPNESS / 2)
    noise = scipy.fft.irfft2(white * amplitude, s=(rows, columns))
    # A real transform stores half of the waves: all but the first and the last stand for their
    # negatives, too, and count twice in the variance.
    times = np.where((east == 0) | (east == columns / 2), 1.0, 2.0)
    found: NDArray[np.float64] = noise / np.sqrt(np.sum(times * amplitude**2) / (rows * columns))
    return found
