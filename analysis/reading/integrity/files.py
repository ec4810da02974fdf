"""Files of the history list that are missing or foreign; records that a plan or a fence invents."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from aiperf.errors import RecordDamagedError
from aiperf.records.bodies import JobIssued, RunResumed, TrialStarted
from aiperf.records.chain import hash_of
from aiperf.records.cursor import Cursor, parse_cursor
from aiperf.records.damage import Damage
from aiperf.records.digest.entries import PREFIX
from aiperf.records.history_files import read_from
from aiperf.run_directory.paths import RunPaths
from analysis.reading.integrity.digests import hashes_in_digest
from analysis.reading.integrity.view import PrimaryRecords, RunView, TrialTrace
from analysis.reading.workers import Workers

MOST_LOOKUPS = 50_000
"""Records whose hashes are looked up: all of a small run, those of a sample of a large one."""


@dataclass(frozen=True, slots=True)
class _Claim:
    index: TrialTrace[TrialStarted]
    places: dict[str, int]

    @property
    def digest(self) -> str | None:
        return self.index.started.body.cursor_hash


def check_cursors(view: RunView, paths: RunPaths, workers: Workers) -> Iterator[Damage]:
    """Cursors beyond the files, or whose hash is not that of the records."""
    claims = []
    for index in _sample(view):
        place, body = index.started, index.started.body
        try:
            places = parse_cursor(body.cursor or "")
        except RecordDamagedError as error:
            yield place.damage("chain", f"the cursor {error}")
            continue
        claims.append(_Claim(index, places))
    wanted: dict[str, set[int]] = {}
    for claim in claims:
        for writer, sequence in claim.places.items():
            wanted.setdefault(writer, set()).add(sequence)
    hashes = _hashes(view, wanted, paths, workers)
    for claim in claims:
        if not view.unfinished or set(claim.places) <= set(hashes):  # else a writer has come since
            yield from _check(claim, hashes)


def _check(claim: _Claim, hashes: dict[str, dict[int, str]]) -> Iterator[Damage]:
    place = claim.index.started
    heads: dict[str, tuple[int, str]] = {}
    for writer, sequence in sorted(claim.places.items()):
        digest = hashes.get(writer, {}).get(sequence)
        if digest is None or (writer == claim.index.writer and sequence >= place.sequence):
            yield place.damage(
                "chain", f"the cursor names record {sequence} of {writer}", "an earlier record that is there"
            )
            return
        heads[writer] = sequence, digest
    made = Cursor(heads).hash
    if made != claim.digest:
        yield place.damage("chain", f"the hash at the cursor is {claim.digest}", f"{made}, by the files")


def _sample(view: RunView) -> list[TrialTrace[TrialStarted]]:
    """Trials with a cursor into a digest, and others with one, up to `MOST_LOOKUPS` records.

    Their order is drawn from the hash of the primary's last known record: who writes a cursor does
    not know yet if it will be checked.
    """
    seed = max((c.body.digest or "" for cs in view.primary.closed.values() for c in cs), default="")
    every = [index for _, index in sorted(view.trials.items()) if index.started.body.cursor is not None]
    digested = [index for index in every if _in_digest(index)]
    return [*digested, *_drawn(view, [index for index in every if not _in_digest(index)], seed)]


def _in_digest(index: TrialTrace[TrialStarted]) -> bool:
    return (index.started.body.cursor or "").startswith(PREFIX)


def _drawn(view: RunView, having: list[TrialTrace[TrialStarted]], seed: str) -> list[TrialTrace[TrialStarted]]:
    if len(having) * (len(view.writers) + 1) <= MOST_LOOKUPS:
        return having
    ordered = sorted(having, key=lambda index: hash_of(f"{seed} {index.started.body.trial}".encode()))
    return ordered[: max(1, MOST_LOOKUPS // (len(view.writers) + 1))]


def _hashes(view: RunView, wanted: dict[str, set[int]], paths: RunPaths, workers: Workers) -> dict[str, dict[int, str]]:
    known = {file.writer for file in view.all_files()}
    futures = {
        writer: workers.submit(hashes_at, paths, writer, frozenset(sequences))
        for writer, sequences in wanted.items()
        if writer in known
    }
    digests = {
        name: hashes_in_digest(view, paths, name.removeprefix(PREFIX), frozenset(numbers))
        for name, numbers in wanted.items()
        if name.startswith(PREFIX)
    }
    return {writer: future.result() for writer, future in futures.items()} | digests


def hashes_at(paths: RunPaths, writer: str, sequences: frozenset[int]) -> dict[int, str]:
    """The hashes of a writer's records by sequence number, of those that are there.

    A record is expected in its line: a file in which it is not has other damages.
    """
    lines = read_from(paths.history_file(writer)).split(b"\n")[:-1]
    return {number: hash_of(lines[number]) for number in sequences if number < len(lines)}


def check_missing(view: RunView) -> Iterator[Damage]:
    """Files of writers that the primary names, and of primaries before the last one."""
    for writer, arrivals in sorted(view.primary.arrivals.items()):
        if writer not in view.writers:
            replica = arrivals[0].body.replica
            yield Damage(f"history/{writer}.jsonl", None, "missing", f"the history of replica {replica} is missing")
    starts = {file.start for file in view.primary.files}
    for start in range(1, max(starts, default=0)):
        if start not in starts:
            yield Damage(f"history/primary-{start}.jsonl", None, "missing", "the history of a primary is missing")


def check_foreign(view: RunView) -> Iterator[Damage]:
    """Replicas' files with records that no `replica_ready` accounts for."""
    if view.unfinished:
        return  # a replica may have come since the primary's file was read
    for writer, file in sorted(view.writers.items()):
        if file.lines and writer not in view.primary.arrivals and not view.ledger.fences.named(writer):
            yield Damage(
                file.file,
                None,
                "conflict",
                "no replica_ready of a primary names this writer",
                "one: the file is foreign",
            )


def check_versions(view: RunView) -> Iterator[Damage]:
    """Files without a chain that begin after a chained one of the same role.

    The other order is honest: a run of an earlier version that this one resumes. It is "no chain".
    """
    chained_since: dict[str, int] = {}
    for file in view.all_files():
        if file.chained and file.lines:
            chained_since[file.role] = min(file.start, chained_since.get(file.role, file.start))
    for file in view.all_files():
        since = chained_since.get(file.role)
        if not file.chained and since is not None and file.start > since:
            found = "the records carry no hash of the one before"
            yield Damage(file.file, 1, "chain", found, f"a chain, as in {file.role}-{since}.jsonl before it")


def check_fences(view: RunView) -> Iterator[Damage]:
    """Resumptions that speak of records that are not there, and claims that do not grow."""
    lines = {file.writer: file.lines for file in view.all_files()}
    for place in view.primary.beginnings:
        if not isinstance(place.body, RunResumed) or place.body.until is None:
            continue
        try:
            places = parse_cursor(place.body.until)
        except RecordDamagedError as error:
            yield place.damage("chain", f"the end of the earlier records {error}")
            continue
        for writer, sequence in sorted(places.items()):
            if sequence >= lines.get(writer, 0):
                yield place.damage(
                    "chain", f"the run is resumed after record {sequence} of {writer}", "a record that is there"
                )
                break
    yield from _claims(view.primary)


def _claims(primary: PrimaryRecords) -> Iterator[Damage]:
    numbered = [
        (writer, place, place.body.claim)
        for writer, place in primary.events
        if isinstance(place.body, RunResumed | JobIssued) and place.body.claim is not None
    ]
    for (before, _, last), (writer, place, claim) in pairwise(numbered):
        if writer == before and claim != last:
            yield place.damage("conflict", f"a primary with claim {last} has claim {claim}", "one claim")
        elif writer != before and claim <= last:
            yield place.damage("conflict", f"claim {claim} follows claim {last}", "numbers that grow")
