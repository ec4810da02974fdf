"""The status of each archive in a list: its rules, its signature, and what contradicts it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aiperf.host import this_host
from analysis.report.model import Report, ViolationPart
from analysis.results.copies import alphabets_of
from analysis.results.heads import Dating
from analysis.results.ranking import system_name
from analysis.results.signatures import signer_of
from analysis.results.source import RunResult
from analysis.results.submission_package import SIGNATURE, STATEMENT
from referee.listing.reading import Facts, folder_of
from referee.listing.submissions import Submission

Signature = tuple[str | None, str]
"""The identity that signed, or None and the reason."""

SIGNATURES = "signatures.json"
"""Signatures that were verified by the same file of signers, by the archives' hashes."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An archive with its result. `result.origin` is its place."""

    submission: Submission
    result: RunResult
    signature: str
    """The state of the signature, in words."""
    alphabets: tuple[str, ...]
    """Alphabets of the system's name, if they are several: letters of one look like another's."""

    @property
    def system(self) -> tuple[str, str, str]:
        """Signer, name and suite: results with the same are of one system.

        Anybody can take a name. A result that nobody known has signed stands for itself, as in a
        ranking, with its place instead of a signer.
        """
        suite = "science" if self.result.report.is_science else "automl"
        return self.result.signer or self.submission.place, system_name(self.result), suite


def verify_signatures(found: Sequence[tuple[Submission, Facts]], site: Path, signers: Path) -> Mapping[str, Signature]:
    """The signature of each signed archive, by its hash.

    They are verified again when the file of signers has changed. Raises EnvironmentNotReadyError
    without ssh-keygen, and OSError if the site cannot be written.
    """
    known = hashlib.sha256(signers.read_bytes()).hexdigest()
    kept = _kept(site / SIGNATURES, known)
    signed = [submission for submission, facts in found if facts.signed and submission.digest not in kept]

    def verify(submission: Submission) -> Signature:
        folder = folder_of(site, submission)
        signer, reason = signer_of((folder / STATEMENT).read_bytes(), folder / SIGNATURE, signers)
        return signer, reason.replace(str(signers), "the list's signers")

    # Threads: they wait for ssh-keygen.
    with ThreadPoolExecutor(2 * this_host().usable_cpus()) as threads:
        fresh = dict(zip((each.digest for each in signed), threads.map(verify, signed), strict=True))
    valid = {each.digest for each, _ in found}
    signatures = {digest: each for digest, each in {**kept, **fresh}.items() if digest in valid}
    document = {"signers": known, "signatures": dict(sorted(signatures.items()))}
    (site / SIGNATURES).write_text(json.dumps(document), encoding="utf-8")
    return signatures


def _kept(file: Path, known: str) -> dict[str, Signature]:
    try:
        document = json.loads(file.read_bytes())
        if document["signers"] != known:
            return {}
        return {digest: (signer, reason) for digest, (signer, reason) in document["signatures"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def judged(submission: Submission, facts: Facts, signature: Signature) -> Listed:
    """An archive that could be read, with the rules of a list: signed, and nothing contradicts."""
    report, (signer, reason) = facts.report, signature
    assert report is not None
    broken = [ViolationPart(rule="report", found=text, required="as recomputed") for text in facts.differences]
    if facts.statement:
        broken.append(ViolationPart(rule="statement", found=facts.statement, required="a statement of this run"))
    invalid = bool(broken)
    if signer is None:
        reason = reason if facts.signed else "not signed"
        broken.append(ViolationPart(rule="signature", found=reason, required="by a key of the list's signers"))
    result = RunResult(
        Path(submission.place),
        _with(report, broken, invalid),
        recomputed=True,
        identity=facts.identity,
        contradictions=facts.contradictions,
        head=facts.head,
        evidence=facts.evidence,
        signer=signer,
        dating=Dating(facts.dated, facts.dating),
    )
    words = f"signed by {signer}" if signer is not None else reason
    return Listed(submission, result, words, alphabets_of(system_name(result)))


def _with(report: Report, broken: Sequence[ViolationPart], invalid: bool) -> Report:
    """A report with the list's own rules that it does not meet."""
    own = {"violations": (*report.violations, *broken)}
    if invalid:
        return report.model_copy(update={**own, "verdict": "invalid", "status": "FAILED"})
    if broken and report.verdict == "official":
        return report.model_copy(update={**own, "verdict": "unofficial", "status": "UNOFFICIAL"})
    return report.model_copy(update=own)
