"""Results of run directories, submission archives or bare report.json files, and their identity."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from aiperf.clock import SystemClock
from aiperf.errors import AiperfError, RunDirectoryError
from aiperf.files import temporary_folder
from aiperf.records.chain import hash_of
from aiperf.records.damage import Damage
from aiperf.records.run_head import final_head
from aiperf.rules.official_run import RULES_VERSION
from aiperf.rules.science import SCIENCE_RULES_VERSION
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.run_directory.state import State
from aiperf.storage.error_texts import in_words
from aiperf.untrusted.reading import MIB, Limits, json_object, parse_outside, read_bounded, reason_of, shortened
from aiperf.untrusted.text import cut
from analysis.reading.run_data import RunData, read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.report.state import read_now
from analysis.results.heads import NOT_ASKED, Arrival, Dating, dating_of
from analysis.results.signatures import verify_signature
from analysis.results.submission_package import is_archive, open_archive

_NUMBERS = np.dtype("<u8")
Numbers = NDArray[np.uint64]

# The identity of a run, which is the same for its directory, its copies and its archives: a
# ranking counts each run once.


def run_identity(data: RunData) -> str | None:
    """The hash of the release that counts: it has t0 to the millisecond. None if there is none.

    Only a complete record of a primary that was not superseded is one (`Ledger.released`).
    """
    released = data.ledger.released
    return None if released is None else hash_of(f"{released.time_ms} {released.body}".encode())


def evidence_of(data: RunData) -> bytes:
    """`evidence_from` the hashes of the steps of all epochs."""
    return evidence_from(
        value for trial in data.ledger.trials.values() for value in trial.epochs.rows.hashes[:, 0].tolist() if value
    )


def evidence_from(hashes: Iterable[bytes]) -> bytes:
    """A number of 64 bits for each different hash, in ascending order, as `numbers_of` reads them.

    Of 100 million epochs two have the same number by chance with a probability of 0.03 %. A number
    that is made on purpose says no more than a copy of the steps, which are public.
    """
    numbers = b"".join(sha256(each).digest()[:8] for each in hashes)
    return np.unique(np.frombuffer(numbers, _NUMBERS)).tobytes()


def numbers_of(evidence: bytes) -> Numbers:
    """The numbers in evidence."""
    return np.frombuffer(evidence, _NUMBERS)


# The result of each kind of source.

REPORT_LIMITS = Limits(size=512 * MIB)
"""Limits for a report.json, which lists all trials."""


@dataclass(frozen=True)
class RunResult:
    """A report, and the damages of its records.

    `recomputed`: its numbers were computed from raw records just now. `identity` is the same for
    all copies of a run, `head` for those with the same records; None if it is not known.
    """

    origin: Path
    report: Report
    recomputed: bool
    damages: tuple[Damage, ...] = ()
    identity: str | None = None
    contradictions: tuple[str, ...] = ()
    """Contradictions that repeating parts of the run gives, in words."""
    head: str | None = None
    evidence: bytes = b""
    """`evidence_from` the hashes of its epochs' steps, which no two trainings have in common."""
    signer: str | None = None
    """Signer of the result; None: it is not signed by anybody who is known."""
    dating: Dating = NOT_ASKED
    """Judgement of its times by the heads that a referee received."""

    @property
    def status(self) -> str:
        """Official, unofficial or invalid; a report without its records is unverified."""
        if self.contradictions:
            return "invalid"
        return self.report.verdict if self.recomputed else "unverified"

    @property
    def key(self) -> str:
        """The identity, or that of a report without records: its SHA-256."""
        return self.identity or sha256(self.report.model_dump_json().encode()).hexdigest()

    @property
    def scored(self) -> Report:
        """The report, without a score if the run is invalid or has no verdict yet."""
        if self.report.verdict not in ("invalid", "running") and not self.contradictions:
            return self.report
        return self.report.model_copy(update={"score_ops": None, "regulated_score_ops": None})


Repeat = Callable[[RunPaths], Sequence[str]]
"""Function that repeats parts of a run, and gives the contradictions to its records in words."""


def read_result(
    path: Path, repeat: Repeat | None = None, signers: Path | None = None, heads: Sequence[Arrival] | None = None
) -> RunResult:
    """Read the result at a path. Raises RunDirectoryError if there is none, with the reason.

    With `repeat`, parts of a run that its records call official are done again. With `signers`, a
    file of allowed signers, a signature is verified. With `heads`, its times are judged.
    """
    if path.is_file() and not is_archive(path):
        return RunResult(path, read_report_file(path), recomputed=False)
    with opened_run(path) as folder:
        paths = open_run(folder)
        data, state = read_result_data(paths, unpacked=folder != path)
        report = build_report(data, state)
        found = tuple(repeat(paths)) if repeat is not None and report.verdict == "official" else ()
        return RunResult(
            path,
            report,
            True,
            data.damages,
            run_identity(data),
            found,
            final_head(paths),
            evidence_of(data),
            verify_signature(folder, signers, report).valid_signer if signers is not None else None,
            dating_of(data, heads) if heads is not None else NOT_ASKED,
        )


def read_result_data(paths: RunPaths, unpacked: bool) -> tuple[RunData, State | None]:
    """A run and its state, of which an unpacked archive has only what the records say."""
    return (read_run(paths), None) if unpacked else read_now(paths, SystemClock().utc_ms())[:2]


@contextmanager
def opened_run(path: Path) -> Iterator[Path]:
    """The run directory at a path; an archive is checked and unpacked into a temporary folder."""
    if not is_archive(path):
        yield path
        return
    with _unwound_by_signals(), temporary_folder() as folder:
        yield open_archive(path, folder)


@contextmanager
def _unwound_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP leave this block as an exception does, which removes what it made."""
    if threading.current_thread() is not threading.main_thread():
        yield  # the main thread has the signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def leave(number: int, _: object) -> None:
        # A second signal must not break off the removal that the first one leads to.
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number, handler in before.items():
        # A program that ignores a signal, such as nohup, or handles it, is left alone.
        if handler == signal.SIG_DFL:
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def read_report_file(path: Path) -> Report:
    """Read a report.json. Raises RunDirectoryError if it is damaged, foreign, or of other rules."""
    data = read_bounded(path, REPORT_LIMITS.size)
    document = parse_outside(
        data, str(path), json_object, REPORT_LIMITS, what="a run directory, archive or report.json"
    )
    if "rules_version" not in document:
        raise RunDirectoryError(f"{path} is JSON, but not a report of aiperf: it has no rules_version")
    if document["rules_version"] not in (RULES_VERSION, SCIENCE_RULES_VERSION):
        found = shortened(repr(document["rules_version"]))
        raise RunDirectoryError(f"{path}: its rules are {found}, not {RULES_VERSION!r}")
    try:
        return Report.model_validate(document)
    except (ValidationError, ValueError, RecursionError, OverflowError) as error:
        raise RunDirectoryError(f"{path} is not a report of this version: {reason_of(error)}") from None


def try_result(
    path: Path, repeat: Repeat | None = None, signers: Path | None = None, heads: Sequence[Arrival] | None = None
) -> RunResult | str:
    """The result at a path, or why there is none: one bad path must not hide the others."""
    try:
        return read_result(path, repeat, signers, heads)
    except AiperfError as error:
        return cut(" ".join(error.lines))
    except Exception as error:  # whatever is in it, it costs its own line only
        return why_unread(path, error)


def why_unread(path: Path, error: Exception) -> str:
    """The line of a result that cannot be read or shown."""
    return cut(in_words(error) if isinstance(error, OSError) else f"{path}: {type(error).__name__}: {error}")
