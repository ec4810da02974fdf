"""The digests of a finished run, so that they can be read again up to any cursor."""

from collections.abc import Iterator

from aiperf.errors import DigestDamagedError
from aiperf.records.cursor import Cursor
from aiperf.records.digest.entries import cursor_at, head_name
from aiperf.records.digest.reader import DigestReader, Line
from aiperf.run_directory.paths import RunPaths


class RecordedDigest:
    """The entries of one primary's digest, up to the first that cannot be read."""

    def __init__(self, paths: RunPaths, primary: str) -> None:
        self.primary = primary
        self.lines: list[Line] = []
        self.damage = ""
        try:
            self.lines.extend(DigestReader(paths, primary).read_new())
        except (DigestDamagedError, OSError) as error:
            self.damage = str(error)

    def cursor(self, places: dict[str, int]) -> Cursor | str:
        """The cursor with these places and the hash of its entry; or the reason why not."""
        place = places[head_name(self.primary)]
        if len(places) > 1 or not 0 <= place < len(self.lines):
            known = f"{head_name(self.primary)[:100]} has {len(self.lines)} entries"
            return f"{known}, and the cursor is behind number {place}; {self.damage}".removesuffix("; ")
        return cursor_at(self.primary, place, self.lines[place].hash)


class EntriesUpTo:
    """A source of entries (`replica.search.known_trials.Lines`): those up to a cursor."""

    def __init__(self, digest: RecordedDigest) -> None:
        self.primary = digest.primary
        self._digest = digest
        self._read = -1
        self._cursor = Cursor()

    def advance(self, cursor: Cursor) -> bool:
        """Take a cursor as the new end; False, without effect, if entries were read behind it."""
        if self._place(cursor) < self._read:
            return False
        self._cursor = cursor
        return True

    def read_new(self) -> Iterator[Line]:
        """Entries up to the end that were not read before."""
        end = self._place(self._cursor)
        yield from self._digest.lines[self._read + 1 : end + 1]
        self._read = end

    def cursor(self) -> Cursor:
        """The end."""
        return self._cursor

    def _place(self, cursor: Cursor) -> int:
        return cursor.heads.get(head_name(self.primary), (-1, ""))[0]
