"""Output before a replica's first message: of start files, banners, prologs, `module load`."""

from contextlib import suppress
from pathlib import Path

from aiperf.storage.logs import open_log
from aiperf.wire.lines import MESSAGE_BEGINS, decode_to_primary
from aiperf.wire.messages import ToPrimary

PREFIX = "(before the replica) "
MOST_BYTES = 1 << 16
"""Upper limit for the bytes of one start that the log keeps; the rest is read and dropped."""


class Talk:
    """The talk of one start, on its way into the replica's log. Its methods block for the log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._room = MOST_BYTES

    def hear(self, line: bytes) -> None:
        """Keep a line that is not a message."""
        kept = line.strip()[: self._room]
        self._room -= len(kept)
        if kept:
            with suppress(OSError), open_log(self._log) as stream:
                stream.write(PREFIX.encode() + kept + b"\n")


def first_message(line: bytes) -> ToPrimary | None:
    """The message of a line, which may follow talk without an end; None if it is talk.

    Raises MessageError for a message that this version does not know.
    """
    start = line.find(MESSAGE_BEGINS)
    return decode_to_primary(line[start:]) if start >= 0 else None


def talk_in(log: Path) -> list[str]:
    """The talk that a log of a replica holds."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)]
