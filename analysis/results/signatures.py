"""Signatures of results with OpenSSH keys: `ssh-keygen` makes and verifies them.

What is signed is a statement: a text of one "name: value" a line that names the result, the head of
all records (`aiperf.records.run_head`) and the checksums of the archive that it is in.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiperf.cli.waiting import finish
from aiperf.errors import AiperfError, EnvironmentNotReadyError, UsageError
from aiperf.files import temporary_folder
from aiperf.records.chain import hash_of
from aiperf.records.run_head import final_head
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.untrusted.reading import read_bounded
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.results.submission_package import CHECKSUMS, SIGNATURE, STATEMENT, differences_to_checksums

NAMESPACE = "aiperf"
"""`ssh-keygen -Y` keeps signatures for different purposes apart by it."""

MOST_BYTES = 1 << 20

FIRST_LINE = "AIPerf statement of a result, version 1"


@dataclass(frozen=True)
class SignatureResult:
    """The outcome of verifying a signature: `reason` says in words why it is valid or is not."""

    valid: bool
    reason: str
    signer: str | None = None
    """The identity that the file of signers gives to the key; None if it does not know the key."""

    @property
    def valid_signer(self) -> str | None:
        """The signer, if the signature is one of this run."""
        return self.signer if self.valid else None


def statement_of(paths: RunPaths, report: Report, checksums: bytes) -> str:
    """The statement of a run with this report, in an archive with these checksums.

    Raises OSError.
    """
    lines = {
        "run": json.dumps(report.name),  # a name may have line breaks
        "head": final_head(paths),
        "score": report.final_line,
        "verdict": report.verdict,
        "error": json.dumps(report.error),
        "duration_s": json.dumps(report.duration_s),
        "dataset": read_manifest(paths).config.run.dataset,
        "run.json": hash_of(paths.run.read_bytes()),
        CHECKSUMS: hash_of(checksums),
    }
    return "".join(f"{line}\n" for line in (FIRST_LINE, *(f"{name}: {value}" for name, value in lines.items())))


def stated_head(file: Path) -> str:
    """The head that a statement names. Raises UsageError if it is not a statement."""
    try:
        lines = read_bounded(file, MOST_BYTES).decode(errors="replace").splitlines()
    except AiperfError as error:
        raise UsageError(str(error)) from None
    heads = [line.removeprefix("head: ") for line in lines if line.startswith("head: ")]
    if lines[:1] != [FIRST_LINE] or len(heads) != 1:
        raise UsageError(f"{file} is not the statement of a result, as aiperf export --sign writes it")
    return heads[0]


def sign(statement: str, key: Path) -> dict[str, bytes]:
    """The statement and its signature by a key, as the files of an archive.

    The key is a file as `ssh-keygen -Y sign -f` takes it: a private key, or a public one whose
    private half an agent has. Raises UsageError if it cannot sign, and EnvironmentNotReadyError
    without ssh-keygen.
    """
    with temporary_folder() as folder:
        file = folder / STATEMENT
        file.write_text(statement, encoding="utf-8")
        done = _ssh_keygen(["-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(file)])
        signature = file.with_name(SIGNATURE)
        if done.returncode != 0 or not signature.is_file():
            raise UsageError(f"{key} cannot sign: {_words_of(done)}")
        return {STATEMENT: statement.encode(), SIGNATURE: signature.read_bytes()}


def check_signers(signers: Path) -> None:
    """Raise UsageError if there is no file of allowed signers."""
    if not signers.is_file():
        raise UsageError(f"{signers} is not a file of allowed signers")


def verify_signature(folder: Path, signers: Path, report: Report | None = None) -> SignatureResult:
    """Verify the signature of an unpacked archive, and that its statement is this run's.

    `signers` is a file of allowed signers (ssh-keygen(1), "ALLOWED SIGNERS"). `report` is the
    recomputed one, if the caller has it. Raises UsageError if `signers` cannot be read, and
    EnvironmentNotReadyError without ssh-keygen.
    """
    statement, signature = folder / STATEMENT, folder / SIGNATURE
    check_signers(signers)
    if missing := [file.name for file in (statement, signature) if not file.is_file()]:
        return SignatureResult(False, f"the result is not signed: it has no {' and no '.join(missing)}")
    signed = statement.read_bytes()
    signer, reason = signer_of(signed, signature, signers)
    if signer is None:
        return SignatureResult(False, reason)
    try:
        difference = difference_to_statement(folder, signed, report)
    except (AiperfError, OSError) as error:
        return SignatureResult(False, f"the run cannot be compared with the statement: {error}", signer)
    if difference:
        return SignatureResult(False, difference, signer)
    return SignatureResult(True, f"signed by {signer}", signer)


def signer_of(signed: bytes, signature: Path, signers: Path) -> tuple[str | None, str]:
    """The identity that signed a statement; None with the reason if no known key did.

    Raises EnvironmentNotReadyError without ssh-keygen.
    """
    found = _ssh_keygen(["-Y", "find-principals", "-s", str(signature), "-f", str(signers)], b"")
    identities = found.stdout.decode(errors="replace").split("\n") if found.returncode == 0 else []
    done = found
    # One key may be listed for several identities, each with its own namespaces and dates.
    for identity in filter(None, identities):
        words = ["-Y", "verify", "-n", NAMESPACE, "-I", identity, "-f", str(signers), "-s", str(signature)]
        done = _ssh_keygen(words, signed)
        if done.returncode == 0:
            return identity, ""
    if done is found:
        return None, f"the key of the signature is not one of {signers}: {_words_of(found)}"
    return None, f"the signature is not one of this statement: {_words_of(done)}"


def difference_to_statement(folder: Path, signed: bytes, report: Report | None = None) -> str:
    """The first difference between a signed statement and the run, in words; empty if none.

    Raises AiperfError or OSError if the run cannot be read.
    """
    paths = open_run(folder)
    if problems := differences_to_checksums(folder):
        return f"the files are not those that were signed: {problems[0]}"
    own = statement_of(paths, report or build_report(read_run(paths)), (folder / CHECKSUMS).read_bytes())
    stated = signed.decode(errors="replace").split("\n")
    for found, expected in zip(stated, own.split("\n"), strict=False):
        if found != expected:
            return f"the statement is not of this run: it says {found[:300]!r}, the run {expected[:300]!r}"
    return "" if signed == own.encode() else "the statement is not of this run: it has other lines"


def _ssh_keygen(words: Sequence[str], given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Call ssh-keygen; its input is this program's unless it is given some."""
    if given is None:
        finish()  # it may ask for a passphrase at the terminal
    try:
        return subprocess.run(["ssh-keygen", *words], input=given, capture_output=True, check=False)
    except FileNotFoundError:
        raise EnvironmentNotReadyError(["ssh-keygen is not on PATH; install OpenSSH 8.2 or later"]) from None


def _words_of(done: subprocess.CompletedProcess[bytes]) -> str:
    text = (done.stderr or done.stdout).decode(errors="replace").strip()
    return text.replace("\n", "; ").replace("\r", "")[:300] or f"ssh-keygen ended with {done.returncode}"
