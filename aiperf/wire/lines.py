"""Messages as lines: one JSON object each."""

import contextlib
from typing import TypeVar

import msgspec
from msgspec.json import Decoder

from aiperf.errors import MessageError
from aiperf.untrusted.structs import decoded, refusal
from aiperf.wire.messages import Begin, FromTrainer, Message, ToAgent, ToPrimary, TrainerFailed, TrainRequest

_T = TypeVar("_T")

MAX_LINE_BYTES = 1 << 20
"""Longest message; a longer line is an error of the protocol."""

_TO_AGENT: Decoder[ToAgent] = Decoder(ToAgent)
_TO_PRIMARY: Decoder[ToPrimary] = Decoder(ToPrimary)
_FROM_TRAINER: Decoder[FromTrainer] = Decoder(FromTrainer)
_TRAIN_REQUEST: Decoder[TrainRequest] = Decoder(TrainRequest)
_BEGIN = Decoder(Begin)


def encode(message: Message) -> bytes:
    """One line of JSON."""
    return msgspec.json.encode(message) + b"\n"


MESSAGE_BEGINS = b'{"type":"'
"""The beginning of every encoded message."""

_FAILURE = '{"type":"failed"'
"""The beginning of an encoded TrainerFailed."""


def failures_in(text: str) -> list[TrainerFailed]:
    """Failures that ranks other than 0 wrote into a log, with or without a starter's prefix."""
    found = []
    for line in text.splitlines():
        start = line.find(_FAILURE)
        if start >= 0:
            with contextlib.suppress(MessageError):
                message = decode_from_trainer(line[start:].encode())
                assert isinstance(message, TrainerFailed)
                found.append(message)
    return found


def decode_to_agent(line: bytes) -> ToAgent:
    """A message to an agent. Raises MessageError."""
    return decode(_TO_AGENT, line)


def decode_to_primary(line: bytes) -> ToPrimary:
    """A message to the primary. Raises MessageError."""
    return decode(_TO_PRIMARY, line)


def decode_from_trainer(line: bytes) -> FromTrainer:
    """A message from a trainer. Raises MessageError."""
    return decode(_FROM_TRAINER, line)


def decode_train_request(line: bytes) -> TrainRequest:
    """A message to a trainer. Raises MessageError."""
    return decode(_TRAIN_REQUEST, line)


def decode_begin(line: bytes) -> Begin:
    """The second message to a trainer. Raises MessageError."""
    return decode(_BEGIN, line)


def decode(decoder: Decoder[_T], line: bytes) -> _T:
    """A message of one of the kinds that `decoder` knows.

    Raises MessageError with what is wrong.
    """
    try:
        return decoded(decoder, line)
    except (ValueError, RecursionError) as error:
        shown = line[:200].decode(errors="replace")
        raise MessageError(f"no message of the protocol: {refusal(error)} in {shown!r}") from None
