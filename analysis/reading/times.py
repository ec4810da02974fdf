"""UTC times of many lines at once."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from aiperf.clock import parse_utc

Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_TIME = b'"0000-00-00T00:00:00.000Z"'
TIME_BYTES = len(_TIME)
_DAY = slice(1, 11)
_PLACES_OF_TIME = (
    (12, 36_000_000),
    (13, 3_600_000),
    (15, 600_000),
    (16, 60_000),
    (18, 10_000),
    (19, 1000),
    (21, 100),
    (22, 10),
    (23, 1),
)
"""The digits of the time of day, and the milliseconds that each is worth."""


def times_of(rows: Bytes) -> Numbers | None:
    """UTC milliseconds of times in quotes, (times, TIME_BYTES); None if one is of another form."""
    # Unsigned: a character before "0" becomes a large number, which is no digit either.
    digits = rows - ord("0")
    template = np.frombuffer(_TIME, np.uint8)
    is_digit = template == ord("0")
    if (rows[:, ~is_digit] != template[~is_digit]).any() or (digits[:, is_digit] > 9).any():
        return None
    milliseconds = np.zeros(len(rows), np.int64)
    for place, worth in _PLACES_OF_TIME:
        milliseconds += digits[:, place] * np.int64(worth)
    # No hour from 24 on, and no minute or second from 60 on.
    if (digits[:, 12] * 10 + digits[:, 13] > 23).any() or (digits[:, (15, 18)] > 5).any():
        return None
    try:
        return milliseconds + _days_ms(rows[:, _DAY])
    except ValueError:
        return None


def _days_ms(days: Bytes) -> Numbers:
    """UTC milliseconds at the beginning of days such as 2026-01-31. Raises ValueError."""
    begins = np.flatnonzero(np.append(True, (days[1:] != days[:-1]).any(axis=1)))
    lengths = np.diff(np.append(begins, len(days)))
    return np.repeat(np.array([_day_ms(days[place].tobytes()) for place in begins], np.int64), lengths)


@lru_cache(maxsize=1024)
def _day_ms(day: bytes) -> int:
    return parse_utc(f"{day.decode()}T00:00:00.000Z")
