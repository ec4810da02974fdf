"""The numbers of a history file whose lines are all as their writer leaves them, as columns.

A file is looked at in pieces of megabytes: the same part of all lines at once, in loops of NumPy. A
line need not be of a known kind, but what stands around its data must be as `encode_record` writes
it, and reports of progress and beginnings of phases must be so from end to end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from aiperf.clock import parse_utc
from aiperf.records.decoding.scan import PHASES

Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Marks = NDArray[np.bool_]

PIECE_BYTES = 1 << 22
"""Of a file, that are looked at together: what is found takes several times as much memory."""

_DIGITS, _REPLICA_DIGITS, _TRIAL_DIGITS = 15, 6, 9
"""Most digits of a number, and of some in a phase (as `aiperf.records.decoding.scan` has them)."""

_TIME = b'"0000-00-00T00:00:00.000Z"'
TIME_BYTES = len(_TIME)
_DAY = slice(1, 11)
_PLACES_OF_TIME = ((12, 36_000_000), (13, 3_600_000), (15, 600_000), (16, 60_000), (18, 10_000), (19, 1000),
                   (21, 100), (22, 10), (23, 1))  # fmt: skip
"""The digits of the time of day, and the milliseconds that each is worth."""

_LINK, _CHECKSUM = 64, 8
_BEFORE_LINK, _BEFORE_CHECKSUM, _END = b'},"previous":"', b'","crc32":"', b'"}'
_TAIL_BYTES = len(_BEFORE_LINK) + _LINK + len(_BEFORE_CHECKSUM) + _CHECKSUM + len(_END)
_PROGRESS, _PHASE = b'"type":"progress"', b'"type":"phase"'
_WITNESS = b'"type":"epoch_witnessed"'
_EPOCH = b'"type":"epoch"'
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", np.uint8)
_NO_WITNESSES = np.zeros((0, 6), np.int64), np.zeros((0, _LINK), np.uint8)
_PADDING = bytes(512)
"""Behind a piece: what is looked for at the end of its last line is not found there."""


class _StrangeError(Exception):
    """A line is not as its writer leaves it."""


@dataclass(frozen=True, slots=True)
class PieceColumns:
    """What the lines of a piece say, a row each. Times are milliseconds, links and checksums text.

    `data` is the place in the line where the data begin; they end at `data_of`.

    `progress` has a row for each report: place of the line in the file, trial, epoch, and images
    trained and evaluated; `phases` one for each beginning: place, replica, trial (-1: none), and
    place in `PHASES`.
    """

    times: Numbers
    monotonic: Numbers
    data: Numbers
    links: Bytes
    checksums: Bytes
    progress: Numbers
    phases: Numbers
    witnesses: Numbers
    """Of a primary's file: place, trial, epoch, replica, start of the replica, and sequence number;
    none if any of the piece is strange.
    """
    digests: Bytes
    """Of the records that they name."""
    epochs: Numbers
    """The places of the lines of completed epochs."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of a whole file, as `PieceColumns`."""

    pieces: list[PieceColumns] = field(default_factory=list)

    def column(self, name: str) -> NDArray[Any]:
        """One column of all lines, in their order."""
        return np.concatenate([getattr(piece, name) for piece in self.pieces])


def data_of(line: bytes, begin: int) -> bytes:
    """The data of a line as JSON, from where they begin."""
    return line[begin : 1 - _TAIL_BYTES]


def link_of(line: bytes) -> str:
    """The link of a line."""
    end = -(len(_BEFORE_CHECKSUM) + _CHECKSUM + len(_END))
    return line[end - _LINK : end].decode()


def columns_of(data: bytes, writer: str) -> FileColumns | None:
    """The columns of a file of whole lines, numbered from 0; None if a line is not as usual.

    What links and checksums say is not looked at, nor the order of times.
    """
    found, line, begin = FileColumns(), 0, 0
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + PIECE_BYTES) + 1 or len(data)
        try:
            piece = _piece(_Text(data[begin:end]), writer.encode(), line)
        except _StrangeError:
            return None
        found.pieces.append(piece)
        line, begin = line + len(piece.times), end
    return found


def _piece(text: _Text, writer: bytes, first: int) -> PieceColumns:
    """The columns of a piece whose first line has the number `first`."""
    starts, ends = text.lines()
    tails = ends - _TAIL_BYTES
    if not starts.size or tails[0] < 0:
        raise _StrangeError
    at = text.after(starts, b'{"version":2,"writer":"' + writer + b'","sequence":')
    sequences, at = text.numbers(at)
    if not np.array_equal(sequences, np.arange(first, first + len(at))):
        raise _StrangeError
    times, at = _times(text, text.after(at, b',"time":'))
    monotonic, at = text.numbers(text.after(at, b',"monotonic_ms":'))
    at = text.after(at, b',"data":{')
    if (at > tails).any():
        raise _StrangeError
    links = text.after(tails, _BEFORE_LINK)
    checksums = text.after(links + _LINK, _BEFORE_CHECKSUM)
    text.after(checksums + _CHECKSUM, _END)
    witnesses, digests = _witnesses(text, at, tails) if writer.startswith(b"primary-") else _NO_WITNESSES
    witnesses[:, 0] += first
    reports, phases = np.flatnonzero(text.has(at, _PROGRESS)), np.flatnonzero(text.has(at, _PHASE))
    return PieceColumns(
        times, monotonic, at - starts - 1, text.rows(links, _LINK), text.rows(checksums, _CHECKSUM),
        np.column_stack([reports + first, *_progress(text, at[reports], tails[reports])]),
        np.column_stack([phases + first, *_phases(text, at[phases], tails[phases])]),
        witnesses, digests, np.flatnonzero(text.has(at, _EPOCH)) + first,
    )  # fmt: skip


def _times(text: _Text, at: Numbers) -> tuple[Numbers, Numbers]:
    """UTC milliseconds, and the places behind them."""
    found = times_of(text.rows(at, TIME_BYTES))
    if found is None:
        raise _StrangeError
    return found, at + TIME_BYTES


def times_of(rows: Bytes) -> Numbers | None:
    """UTC milliseconds of times in quotes, (times, TIME_BYTES); None if one is of another form."""
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
    except _StrangeError:
        return None


def _days_ms(days: Bytes) -> Numbers:
    """UTC milliseconds at the beginning of days such as 2026-01-31."""
    begins = np.flatnonzero(np.append(True, (days[1:] != days[:-1]).any(axis=1)))
    lengths = np.diff(np.append(begins, len(days)))
    return np.repeat(np.array([_day_ms(days[place].tobytes()) for place in begins], np.int64), lengths)


@lru_cache(maxsize=1024)
def _day_ms(day: bytes) -> int:
    try:
        return parse_utc(f"{day.decode()}T00:00:00.000Z")
    except ValueError:
        raise _StrangeError from None


def _progress(text: _Text, at: Numbers, tails: Numbers) -> Iterator[Numbers]:
    """Trial, epoch and images of reports whose data begin and end at these places."""
    at = at + len(_PROGRESS)
    for name in (b"trial", b"epoch", b"images_trained", b"images_evaluated"):
        values, at = text.numbers(text.after(at, b',"' + name + b'":'))
        yield values
    if not np.array_equal(at, tails):
        raise _StrangeError


def _phases(text: _Text, at: Numbers, tails: Numbers) -> Iterator[Numbers]:
    """Replica, trial and phase of beginnings of phases."""
    replicas, at = text.numbers(text.after(at + len(_PHASE), b',"replica":'), _REPLICA_DIGITS)
    yield replicas
    at = text.after(at, b',"trial":')
    trials = np.full(len(at), -1, np.int64)
    none = text.has(at, b"null")
    trials[~none], behind = text.numbers(at[~none], _TRIAL_DIGITS)
    at = at + len(b"null")
    at[~none] = behind
    yield trials
    at = text.after(at, b',"phase":"')
    codes = np.full(len(at), -1, np.int64)
    for code, name in enumerate(PHASES):
        codes[text.has(at, name.encode() + b'"') & (at + len(name) + 1 == tails)] = code
    if (codes < 0).any():
        raise _StrangeError
    yield codes


def _witnesses(text: _Text, at: Numbers, tails: Numbers) -> tuple[Numbers, Bytes]:
    """What the witnesses say whose data begin and end at these places, by their lines from 0."""
    places = np.flatnonzero(text.has(at, _WITNESS))
    try:
        trials, at = text.numbers(text.after(at[places] + len(_WITNESS), b',"trial":'), _TRIAL_DIGITS)
        epochs, at = text.numbers(text.after(at, b',"epoch":'), _REPLICA_DIGITS)
        at = text.after(at, b',"writer":"replica-')
        digits = text.rows(at, 4) - ord("0")
        starts, at = text.numbers(text.after(at + 4, b"-"), _TRIAL_DIGITS)
        sequences, at = text.numbers(text.after(at, b'","sequence":'))
        at = text.after(at, b',"digest":"')
        digests = text.rows(at, _LINK)
        if (digits > 9).any() or not np.isin(digests, _HEXADECIMAL).all():
            return _NO_WITNESSES
        if not np.array_equal(text.after(at + _LINK, b'"'), tails[places]):
            return _NO_WITNESSES
    except _StrangeError:
        return _NO_WITNESSES
    replicas = digits.astype(np.int64) @ np.array((1000, 100, 10, 1))
    return np.column_stack([places, trials, epochs, replicas, starts, sequences]), digests


class _Text:
    """A piece of a file. Places are numbers of bytes in it, one for each line that is meant."""

    def __init__(self, piece: bytes) -> None:
        self._bytes = np.frombuffer(piece + _PADDING, np.uint8)

    def lines(self) -> tuple[Numbers, Numbers]:
        """The places where lines begin, and of their ends."""
        ends = np.flatnonzero(self._bytes == ord("\n")).astype(np.int64)
        return np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])[: len(ends)], ends

    def rows(self, at: Numbers, width: int) -> Bytes:
        """The next bytes from each place on, (places, width)."""
        return np.asarray(sliding_window_view(self._bytes, width)[at], np.uint8)

    def has(self, at: Numbers, text: bytes) -> Marks:
        """True where a text stands."""
        found: Marks = (self.rows(at, len(text)) == np.frombuffer(text, np.uint8)).all(axis=1)
        return found

    def after(self, at: Numbers, text: bytes) -> Numbers:
        """The places behind a text that stands everywhere. Raises _StrangeError if it does not."""
        if (self.rows(at, len(text)) != np.frombuffer(text, np.uint8)).any():
            raise _StrangeError
        return at + len(text)

    def numbers(self, at: Numbers, most: int = _DIGITS) -> tuple[Numbers, Numbers]:
        """Whole numbers from these places on, of at most so many digits, and the places behind.

        Raises _StrangeError if there is none, or one that begins with a needless zero.
        """
        values, behind = np.zeros(len(at), np.int64), at
        for count in range(most + 1):
            digits = self._bytes[behind] - ord("0")
            there = digits <= 9
            if not there.any():
                break
            if count == most or (there & (values == 0) & (behind > at)).any():
                raise _StrangeError
            values = values * 10 + digits if there.all() else np.where(there, values * 10 + digits, values)
            behind = behind + there
        if (behind == at).any():
            raise _StrangeError
        return values, behind
