"""The evidence that an agent follows: the digest it is told of, or the raw records."""

from __future__ import annotations

import logging

from aiperf.errors import DigestDamagedError
from aiperf.records.cursor import Cursor
from aiperf.records.files import HistoryReader
from aiperf.run_directory.paths import RunPaths
from replica.search.history.contract import Evidence
from replica.search.history.digested import of_digest
from replica.search.history.recorded import RecordedEvidence

log = logging.getLogger(__name__)


class FollowedEvidence:
    """Evidence that moves to a digest, and to the raw records if that cannot be relied on."""

    def __init__(self, paths: RunPaths, evidence: Evidence | None = None) -> None:
        self.now: Evidence = evidence or RecordedEvidence(HistoryReader(paths))
        self._paths = paths
        self.digest: str | None = None
        """The digest that is followed; None: the raw records."""
        self._distrusted: set[str] = set()
        self._own: dict[int, int] = {}
        """The last trial that a replica of this process has started, by replica."""

    def follow(self, digest: str | None) -> None:
        """Read a digest from now on, by the name of its primary; None: the raw records."""
        name = None if digest in self._distrusted else digest
        if name != self.digest:
            self.digest, paths = name, self._paths
            self.now = RecordedEvidence(HistoryReader(paths)) if name is None else of_digest(paths, name)

    def distrust(self, reason: object) -> None:
        """Read the raw records in place of the digest; no-op without one."""
        if self.digest is not None:
            log.error("the digest %s is not used, but the raw records: %s", self.digest, reason)
            self._distrusted.add(self.digest)
            self.follow(None)

    def read(self) -> None:
        """Take in what is new. Raises OSError."""
        try:
            self.now.read()
        except DigestDamagedError as error:
            self.distrust(error)
            self.now.read()

    def note_start(self, replica: int, trial: int) -> None:
        """Note that a replica has started a trial, which `read` may show later."""
        self._own[replica] = trial

    def knows_last_start(self, replica: int) -> bool:
        """True if the last start of a trial that was noted of a replica has been read."""
        return replica not in self._own or self.now.started(self._own[replica]) is not None

    def is_current(self, cursor: Cursor, replica: int) -> bool:
        """True if an earlier cursor knows the last trial that a replica has started."""
        return self.knows_last_start(replica) and self.now.is_current(cursor, replica)
