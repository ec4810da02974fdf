"""Messages between NNI's tuner and the primary that it has started: one JSON object per line."""

from typing import Annotated

from msgspec import Meta
from msgspec.json import Decoder

from aiperf.wire.lines import decode
from aiperf.wire.messages import Message
from primary.managers import EndReason

Value = int | float | str


class Wanted(Message, tag="wanted", frozen=True, kw_only=True):
    """Tuner to primary: NNI has room for this many more trials."""

    jobs: Annotated[int, Meta(ge=1)]


class Gone(Message, tag="gone", frozen=True, kw_only=True):
    """Tuner to primary: NNI's trial was ended by a user."""

    trial: int


class Clock(Message, tag="clock", frozen=True, kw_only=True):
    """Primary to tuner: this many seconds of the run are left."""

    left_s: float


class Offer(Message, tag="offer", frozen=True, kw_only=True):
    """Primary to tuner: a job that a replica works on, as NNI shows it."""

    trial: int
    parameters: dict[str, Value]


class Closed(Message, tag="closed", frozen=True, kw_only=True):
    """Primary to tuner: the run has ended; no more jobs."""

    reason: EndReason


ToPrimary = Wanted | Gone
ToTuner = Clock | Offer | Closed

_TO_PRIMARY: Decoder[ToPrimary] = Decoder(ToPrimary)
_TO_TUNER: Decoder[ToTuner] = Decoder(ToTuner)


def decode_to_primary(line: bytes) -> ToPrimary:
    """A message to the primary. Raises MessageError."""
    return decode(_TO_PRIMARY, line)


def decode_to_tuner(line: bytes) -> ToTuner:
    """A message to the tuner. Raises MessageError."""
    return decode(_TO_TUNER, line)
