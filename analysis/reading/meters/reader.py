"""The meters of a run directory: their CSV files as energy over time on the primary's clock."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite

import numpy as np

from aiperf.clock import parse_utc
from aiperf.errors import RunDirectoryError
from aiperf.run_directory.paths import RunPaths
from aiperf.untrusted.reading import MIB, read_bounded, read_outside, shortened
from analysis.reading.meters.declared import Declared, Meter, declared
from analysis.reading.meters.integration import Curve, curve_of

MOST_BYTES = 256 * MIB
"""Size of a CSV file: a reading a second for a month has 100 MiB."""

MILLISECONDS = 1e11
"""A number from here on is milliseconds since 1970: as seconds it would be the year 5138."""

SHOWN_LINES = 3


@dataclass(frozen=True, eq=False)
class MeterSeries:
    """A meter with its readings."""

    meter: Meter
    curve: Curve
    unreadable: int
    """Rows of the meter that have no time or no value."""


@dataclass(frozen=True, eq=False)
class Meters:
    """The meters of a run. `problems`: what cannot be used, in sentences with the file's name."""

    document: Declared = field(default_factory=Declared)
    series: tuple[MeterSeries, ...] = ()
    problems: tuple[str, ...] = ()


def read_meters(paths: RunPaths) -> Meters:
    """Read the meters of a run; none if it has no `meters/meters.toml`."""
    folder = paths.meters
    try:
        there = (folder / "meters.toml").exists()
        files = sorted(file.name for file in folder.glob("*.csv"))
    except OSError as error:
        return Meters(problems=(f"meters: cannot be read: {error.strerror}",))
    if not there:
        return Meters(problems=tuple(f"meters/{name}: meters.toml does not name it" for name in files))
    try:
        document = read_outside(folder / "meters.toml", declared, what="a description of meters")
    except RunDirectoryError as error:
        return Meters(problems=(f"meters/{str(error).removeprefix(f'{folder}/')}",))
    named = {meter.file for meter in document.meter}
    problems = [f"meters/{name}: meters.toml does not name it" for name in files if name not in named]
    series: list[MeterSeries] = []
    for name in sorted(named):
        own = [meter for meter in document.meter if meter.file == name]
        try:
            # Spreadsheets put a byte order mark in front, which would be part of the first column's
            # name.
            text = read_bounded(folder / name, MOST_BYTES).decode("utf-8-sig", "replace")
        except RunDirectoryError as error:
            problems.append(f"meters/{str(error).removeprefix(f'{folder}/')}")
            continue
        for meter in own:
            try:
                series.append(_series(meter, text))
            except ValueError as error:
                problems.append(f"meters/{meter.name}: {shortened(str(error))}")
    return Meters(document, tuple(series), tuple(problems))


def _series(meter: Meter, text: str) -> MeterSeries:
    """Read the rows of a meter. Raises ValueError if they make no curve."""
    times, values, bad = list[float](), list[float](), list[str]()
    for line, row in _rows(meter, text):
        if any((row.get(column) or "").strip() != value for column, value in meter.only.items()):
            continue
        try:
            time_ms, value = _time_ms(meter, row), _value(meter, row)
        except ValueError as error:
            bad.append(f"line {line}: {error}")
        else:
            times.append(time_ms - 1000 * meter.clock_ahead_s)
            values.append(value)
    if len(set(times)) < 2:
        reasons = "; ".join(bad[:SHOWN_LINES])
        raise ValueError(f"it has {len(set(times))} readings, and needs two" + (f" ({reasons})" if bad else ""))
    kind = "counter" if meter.joules is not None else meter.readings
    wraps_at = None if meter.wraps_at is None else meter.wraps_at * meter.scale
    return MeterSeries(meter, curve_of(np.array(times), np.array(values), kind, wraps_at), len(bad))


def _rows(meter: Meter, text: str) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    """Yield the rows behind the head of a table, with their lines. Raises ValueError."""
    head, _, _ = text.partition("\n")
    wanted = [meter.time, meter.watts or meter.joules or "", *meter.only]
    delimiter = next((each for each in ",;\t" if _columns(head, each).issuperset(wanted)), None)
    if delimiter is None:
        lacks = ", ".join(sorted(set(wanted) - max((_columns(head, each) for each in ",;\t"), key=len)))
        raise ValueError(f"its first line has no column {lacks}")
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
        names: Sequence[str] = [name.strip() for name in next(reader)]
        for cells in reader:
            if cells:
                yield reader.line_num, dict(zip(names, cells, strict=False))
    except csv.Error as error:
        raise ValueError(f"it is not CSV: {error}") from None


def _columns(head: str, delimiter: str) -> set[str]:
    try:
        return {name.strip() for name in next(csv.reader([head], delimiter=delimiter, skipinitialspace=True), [])}
    except csv.Error:
        return set()


def _time_ms(meter: Meter, row: Mapping[str, str | None]) -> float:
    text = (row.get(meter.time) or "").strip()
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if not isfinite(number) or not 0 < number < MILLISECONDS * 1e3:
            raise ValueError(f"{shortened(text, 40)} is not a time")
        return number if number >= MILLISECONDS else 1000 * number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{shortened(text, 40)!r} is not a time") from None
    if moment.tzinfo is None:
        if meter.utc_offset is None:
            raise ValueError(f"{shortened(text, 40)!r} names no time zone; say utc_offset in meters.toml")
        text = moment.isoformat() + meter.utc_offset
    return float(parse_utc(text))


def _value(meter: Meter, row: Mapping[str, str | None]) -> float:
    text = (row.get(meter.watts or meter.joules or "") or "").strip()
    try:
        value = float(text) * meter.scale
    except ValueError:
        raise ValueError(f"{shortened(text, 40)!r} is not a number") from None
    if not isfinite(value) or not 0 <= value <= 1e18:
        raise ValueError(f"{shortened(text, 40)} is not a reading")
    return value
