"""The declaration of a machine's meters by its owner: `meters/meters.toml` of a run directory.

Nothing in it can be checked by the records; a report shows it as declared.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from aiperf.clock import parse_utc
from aiperf.config.sections.base import Listed
from aiperf.config.texts import Line
from aiperf.config.toml_text import parse_toml

MOST_METERS = 10_000

Subsystem = Literal["network", "storage", "head", "cooling"]

SUBSYSTEMS: tuple[Subsystem, ...] = ("network", "storage", "head", "cooling")
"""Subsystems next to the compute nodes (EE HPC WG, aspect 3): interconnect, storage, head or
control nodes, and cooling inside of the system.
"""

Location = Literal["upstream", "loss-measured", "loss-sampled", "loss-from-maker", "unknown"]
"""The place of a meter: upstream of the conversion of power; else the source of the loss of the
conversion, which its watts include: measured at the same time, measured once on one power supply,
or its maker's figure.
"""

Scope = Literal["node", "rack", "facility"]

_Number = Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)]


def _moment(text: str) -> str:
    parse_utc(text)
    return text


Moment = Annotated[Line, AfterValidator(_moment)]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Meter(_Declared):
    """One meter, or one outlet of a meter: a column of a CSV file."""

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][\w.-]{0,200}\.csv$")]
    """The CSV file, next to meters.toml."""
    scope: Scope
    time: Line = "time"
    """Column of times: ISO 8601, or seconds or milliseconds since 1970."""
    watts: Line | None = None
    """Column of power. One of `watts` and `joules`."""
    joules: Line | None = None
    """Column of a counter of energy."""
    scale: _Number = 1.0
    """Watts, or joules, of one unit of the column: 3.6e6 for kilowatt-hours."""
    only: dict[Line, Line] = {}
    """Values of other columns that a row of this meter has, such as {outlet = "12"}."""
    utc_offset: Annotated[str, Field(pattern=r"^[+-]([01]\d|2[0-3]):[0-5]\d$")] | None = None
    """Zone of times that name none, such as "+02:00"."""
    clock_ahead_s: Annotated[float, Field(ge=-1e9, le=1e9)] = 0.0
    """Seconds by which the clock of the meter is ahead of the primary's."""
    readings: Literal["instant", "average"] = "instant"
    """`average`: watts are the mean since the reading before."""
    wraps_at: _Number | None = None
    """Value, in units of the column, at which a counter begins again from 0."""
    sampled_s: _Number | None = None
    """Interval of the samples inside of the meter, in seconds; of readings that are `average`."""
    nodes: Annotated[tuple[Line, ...], Listed, Field(max_length=100_000)] = ()
    """Nodes behind the meter, those of other jobs too; `*` and `?` as in names of files."""
    includes: Annotated[tuple[Subsystem, ...], Listed] = ()
    """Subsystems behind the meter in addition to nodes."""
    feed: Line = ""
    """Name of the feed, if every node is behind a meter of each of several feeds."""
    location: Location = "unknown"
    accuracy_percent: Annotated[float, Field(gt=0, le=100)] | None = None
    """Documented accuracy."""
    idle: Annotated[tuple[Moment, Moment], Listed] | None = None
    """Beginning and end of a time at which the nodes were idle, within the file."""
    device: Line = ""
    """Maker and model."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.watts is None) == (self.joules is None):
            raise ValueError("one of watts and joules names the column")
        if not self.nodes and not self.includes:
            raise ValueError("neither nodes nor includes: it measures nothing of the system")
        if self.idle is not None and parse_utc(self.idle[0]) >= parse_utc(self.idle[1]):
            raise ValueError("idle ends before it begins")
        return self

    @property
    def name(self) -> str:
        """The file and the column, for messages."""
        chosen = "".join(f", {column} {value}" for column, value in self.only.items())
        return f"{self.file} ({self.watts or self.joules}{chosen})"


class Estimate(_Declared):
    """Power of a subsystem that no meter measures."""

    subsystem: Subsystem
    watts: Annotated[float, Field(ge=0, le=1e12)]
    source: Line
    """Source of the estimate, such as a data sheet."""


class Declared(_Declared):
    """The document."""

    meter: Annotated[tuple[Meter, ...], Listed, Field(max_length=MOST_METERS)] = ()
    estimate: Annotated[tuple[Estimate, ...], Listed, Field(max_length=len(SUBSYSTEMS))] = ()
    absent: Annotated[tuple[Subsystem, ...], Listed] = ()
    """Subsystems that the system does not have, or that the run does not use."""


def declared(data: bytes) -> Declared:
    """A parser of the document. Raises ValueError."""
    return Declared.model_validate(parse_toml(data.decode("utf-8-sig")))
