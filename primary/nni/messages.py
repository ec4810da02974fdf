"""Messages between NNI's tuner and the primary that it has started: one JSON object per line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from aiperf.wire.lines import decode
from aiperf.wire.messages import Message
from primary.managers.contract import EndReason

Value = int | float | str


class Wanted(Message):
    """Tuner to primary: NNI has room for this many more trials."""

    type: Literal["wanted"] = "wanted"
    jobs: int = Field(ge=1)


class Gone(Message):
    """Tuner to primary: NNI's trial was ended by a user."""

    type: Literal["gone"] = "gone"
    trial: int


class Clock(Message):
    """Primary to tuner: this many seconds of the run are left."""

    type: Literal["clock"] = "clock"
    left_s: float


class Offer(Message):
    """Primary to tuner: a job that a replica works on, as NNI shows it."""

    type: Literal["offer"] = "offer"
    trial: int
    parameters: dict[str, Value]


class Closed(Message):
    """Primary to tuner: the run has ended; no more jobs."""

    type: Literal["closed"] = "closed"
    reason: EndReason


ToPrimary = Wanted | Gone
ToTuner = Clock | Offer | Closed

_TO_PRIMARY: TypeAdapter[ToPrimary] = TypeAdapter(Annotated[ToPrimary, Field(discriminator="type")])
_TO_TUNER: TypeAdapter[ToTuner] = TypeAdapter(Annotated[ToTuner, Field(discriminator="type")])


def decode_to_primary(line: bytes) -> ToPrimary:
    """A message to the primary. Raises MessageError."""
    return decode(_TO_PRIMARY, line)


def decode_to_tuner(line: bytes) -> ToTuner:
    """A message to the tuner. Raises MessageError."""
    return decode(_TO_TUNER, line)
