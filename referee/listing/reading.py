"""The parts of an archive that a list keeps: its recomputed report without trials, and its page.

Both are kept under the archive's SHA-256, and hold as long as the program that made them is the
same.
"""

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

from pydantic import ConfigDict

import analysis.output
from aiperf.errors import AiperfError, EnvironmentNotReadyError, RunDirectoryError, UsageError
from aiperf.records.run_head import final_head
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.source_code import source_hash
from aiperf.untrusted.reading import read_bounded, reason_of, shortened
from analysis.output.page.links import Links
from analysis.output.page.view import report_page
from analysis.output.systems import mlperf_system
from analysis.reading.run_data import RunData
from analysis.reading.workers import Workers
from analysis.report.build import build_report
from analysis.report.estimates import Part
from analysis.report.model import Report
from analysis.results.heads import MOST_BYTES, Dating, dating_of, read_arrivals
from analysis.results.ranking import ORDERS, rank
from analysis.results.recomputed_report import differences_to_stored
from analysis.results.science import rank_workloads
from analysis.results.signatures import difference_to_statement
from analysis.results.source import RunResult, evidence_of, opened_run, read_result_data, run_identity
from analysis.results.submission_package import SIGNATURE, STATEMENT
from referee.listing.submissions import Submission, is_plain

RESULTS = "results"
"""The folder of the site with a folder for each archive, named by its hash."""

FACTS, PAGE = "facts.json", "index.html"

SHOWN = 20
"""Upper limit for the damages and findings that are kept; the report's page has more."""


class Facts(Part):
    """The facts that were found in an archive. Without a report it could not be read."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    made_by: str
    """`program_of` of the program that read it."""
    failure: str = ""
    """The reason why it cannot be read."""
    report: Report | None = None
    """The recomputed report without trials, timeline and replicas."""
    identity: str | None = None
    head: str | None = None
    evidence: bytes = b""
    """8 bytes for each epoch."""
    contradictions: tuple[str, ...] = ()
    """Plans of an official run that were made again and differ."""
    differences: tuple[str, ...] = ()
    """Fields of the submitter's report that are not as recomputed."""
    signed: bool = False
    statement: str = ""
    """The first difference between the signed statement and the run."""
    dated: bool = False
    dating: str = ""
    """The reason why the heads that the list received date the run, or do not."""


def program_of(plans: int | None) -> str:
    """A hash of all that facts and pages depend on, but for the archive."""
    digest = hashlib.sha256(f"{source_hash()} {plans}".encode())
    for folder in analysis.output.__path__:
        for file in sorted(Path(folder, "templates").iterdir()):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def facts_of(submissions: Sequence[Submission], site: Path, plans: int | None) -> Iterator[tuple[str, Facts]]:
    """The facts of each archive by its hash, kept ones first; the others are read by all CPUs.

    `plans` of each official run are made again (None: all). Raises EnvironmentNotReadyError without
    ssh-keygen or the libraries of the search, and OSError if the site cannot be written.
    """
    program = program_of(plans)
    unread = list[Submission]()
    for submission in {each.digest: each for each in submissions}.values():
        kept = _kept(folder_of(site, submission), _made_by(program, submission))
        if kept is None:
            unread.append(submission)
        else:
            yield submission.digest, kept
    read = partial(read_archive, site=site, program=program, plans=plans)
    left = list(unread)
    try:
        with Workers(several=len(unread) > 1) as workers:
            futures = [workers.submit(read, submission) for submission in unread]
            for submission, future in zip(unread, futures, strict=True):
                yield submission.digest, future.result()
                left.remove(submission)
    except EnvironmentNotReadyError as error:
        if not isinstance(error.__cause__, BrokenProcessPool):
            raise
        # One of them was killed, such as for want of memory, and took the others with it.
        yield from ((submission.digest, _read_alone(submission, read, program)) for submission in left)


def _made_by(program: str, submission: Submission) -> str:
    """A hash of all that the facts of an archive depend on: heads may still arrive."""
    try:
        heads = read_bounded(submission.heads, MOST_BYTES) if is_plain(submission.heads) else b""
    except RunDirectoryError:  # whose reason is what the facts say of them
        heads = b""
    return hashlib.sha256(program.encode() + heads).hexdigest() if heads else program


def _read_alone(submission: Submission, read: partial[Facts], program: str) -> Facts:
    try:
        with Workers(several=True) as workers:
            future: Future[Facts] = workers.submit(read, submission)
            return future.result()
    except EnvironmentNotReadyError as error:
        if not isinstance(error.__cause__, BrokenProcessPool):
            raise
        return Facts(made_by=program, failure="the process that read it was killed, perhaps for want of memory")


def folder_of(site: Path, submission: Submission) -> Path:
    """The folder of the site for what was found in an archive."""
    return site / RESULTS / submission.digest


def _kept(folder: Path, program: str) -> Facts | None:
    try:
        facts = Facts.model_validate_json((folder / FACTS).read_bytes())
    except (OSError, ValueError):
        return None
    return facts if facts.made_by == program else None


def read_archive(submission: Submission, site: Path, program: str, plans: int | None) -> Facts:
    """Read an archive and keep what was found. Raises EnvironmentNotReadyError and OSError."""
    folder = folder_of(site, submission)
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    try:
        facts = _read(submission, folder, program, plans)
    except EnvironmentNotReadyError:
        raise
    except AiperfError as error:
        facts = Facts(made_by=program, failure=_without_path(" ".join(error.lines), submission))
    except Exception as error:  # whatever is in it, it costs its own line only
        facts = Facts(made_by=program, failure=_without_path(f"{type(error).__name__}: {reason_of(error)}", submission))
    # Last: facts that are there say that all else is there. A failure is not kept: it may have been
    # this machine's, such as a full disk.
    if not facts.failure:
        (folder / FACTS).write_text(facts.model_dump_json(), encoding="utf-8")
    return facts


def _without_path(text: str, submission: Submission) -> str:
    """A reason that is the same wherever the archive lies."""
    return shortened(text.replace(f"{submission.file}: ", "").replace(str(submission.file), "the archive"))


def _read(submission: Submission, folder: Path, program: str, plans: int | None) -> Facts:
    with opened_run(submission.file) as root:
        paths = open_run(root)
        data, state = read_result_data(paths, unpacked=True)
        report = build_report(data, state)
        dating = _dating(data, submission)
        signed = all((root / name).is_file() for name in (STATEMENT, SIGNATURE))
        facts = Facts(
            made_by=_made_by(program, submission),
            report=short(report),
            dated=dating.dated,
            dating=dating.reason,
            identity=run_identity(data),
            head=final_head(paths),
            evidence=evidence_of(data),
            contradictions=_contradictions(paths, plans) if report.verdict == "official" else (),
            differences=tuple(differences_to_stored(root, report)[0])[:SHOWN],
            signed=signed,
            statement=difference_to_statement(root, (root / STATEMENT).read_bytes(), report) if signed else "",
        )
        _try_to_show(facts.report, submission)
        if signed:
            for name in (STATEMENT, SIGNATURE):
                (folder / name).write_bytes((root / name).read_bytes())
        up = "../.."
        links = Links(library=f"{up}/assets/library.js", script=f"{up}/assets/report.js", list=f"{up}/index.html")
        (folder / PAGE).write_text(report_page(data, report, links), encoding="utf-8")
    return facts


def _dating(data: RunData, submission: Submission) -> Dating:
    """Judge the times of a run by the heads next to its archive."""
    if not is_plain(submission.heads):
        return Dating(False, "the list has no heads of it")
    try:
        return dating_of(data, read_arrivals(submission.heads))
    except UsageError as error:
        return Dating(False, _without_path(str(error), submission))


def _try_to_show(report: Report | None, submission: Submission) -> None:
    """Make rows and a description, as the list will: what cannot be shown must fail here."""
    assert report is not None
    result = RunResult(Path(submission.place), report, recomputed=True)
    if report.is_science:
        rank_workloads([result])
    else:
        for order in ORDERS:
            rank([result], order)
    mlperf_system(report)


def _contradictions(paths: RunPaths, plans: int | None) -> tuple[str, ...]:
    if plans == 0:
        return ()
    from referee.replay import replay  # noqa: PLC0415  (loads the search)

    return tuple(str(difference) for difference in replay(paths, plans).differences)[:SHOWN]


def short(report: Report) -> Report:
    """A report without the parts that grow with the run, of which no table of a list is made."""
    physics = report.physics
    return report.model_copy(
        update={
            "trials": (),
            "timeline": (),
            "replica_details": (),
            "hyperparameters": (),
            "failures": (),
            "roofline": None,
            "hybrid": None,
            "damages": report.damages[:SHOWN],
            "notices": report.notices[:SHOWN],
            "unfinished_lines": report.unfinished_lines[:SHOWN],
            "physics": physics and physics.model_copy(update={"findings": physics.findings[:SHOWN]}),
            "workloads": tuple(part.model_copy(update={"models": ()}) for part in report.workloads),
        }
    )
