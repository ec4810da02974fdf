"""Signed results, with the real ssh-keygen."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from aiperf.errors import EnvironmentNotReadyError, RunDirectoryError, UsageError
from aiperf.records.run_head import final_head
from aiperf.run_directory.paths import RunPaths
from analysis.results.signatures import sign, verify_signature
from analysis.results.submission_package import open_archive
from tests.support.hand_made import HandMadeRun, aiperf, aiperf_here
from tests.support.needs import need


@dataclass(frozen=True)
class Key:
    private: Path
    signers: Path


def make_key(folder: Path, name: str) -> Key:
    need("ssh-keygen")
    private = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", private], check=True)
    signers = folder / f"{name}.signers"
    signers.write_text(f'{name}@site.example namespaces="aiperf" {private.with_suffix(".pub").read_text()}')
    return Key(private, signers)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Key, Key]:
    folder = tmp_path_factory.mktemp("keys")
    return make_key(folder, "ada"), make_key(folder, "eve")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory, keys: tuple[Key, Key]) -> dict[str, Path]:
    """Two runs, signed by the same key, and the first without a signature."""
    folder = tmp_path_factory.mktemp("archives")
    for name, correct in (("one", 300), ("two", 310)):
        run = HandMadeRun(folder / name).release(60).at(10).start_trial(1).at(20).epoch(1, 1, correct)
        run.at(30).end_trial(1).end(60)
        done = aiperf_here("export", folder / name, "--sign", keys[0].private)
        assert done.returncode == 0, done.stderr
    assert aiperf_here("export", folder / "one", "--file", folder / "plain.tar.gz").returncode == 0
    return {name: folder / f"{name}.tar.gz" for name in ("one", "two", "plain")}


def unpacked(archive: Path, folder: Path) -> Path:
    return open_archive(archive, folder)


def test_a_signed_archive_is_signed_by_its_key(
    archives: dict[str, Path], keys: tuple[Key, Key], tmp_path: Path
) -> None:
    folder = unpacked(archives["one"], tmp_path)
    found = verify_signature(folder, keys[0].signers)
    assert (found.valid, found.signer, found.reason) == (True, "ada@site.example", "signed by ada@site.example")
    beside = archives["one"].with_name("one.tar.gz.STATEMENT")
    assert beside.read_bytes() == (folder / "STATEMENT").read_bytes()
    assert f"head: {final_head(RunPaths(folder))}\n" in beside.read_text()
    assert "error: 0.16666666666666666\n" in beside.read_text()


def test_a_key_that_is_not_among_the_signers_is_refused(
    archives: dict[str, Path], keys: tuple[Key, Key], tmp_path: Path
) -> None:
    found = verify_signature(unpacked(archives["one"], tmp_path), keys[1].signers)
    assert not found.valid
    assert found.signer is None
    assert "is not one of" in found.reason


def test_a_changed_statement_is_refused(archives: dict[str, Path], keys: tuple[Key, Key], tmp_path: Path) -> None:
    folder = unpacked(archives["one"], tmp_path)
    statement = folder / "STATEMENT"
    statement.write_text(statement.read_text().replace("error: 0.1", "error: 0.0"))
    found = verify_signature(folder, keys[0].signers)
    assert (found.valid, found.signer) == (False, None)
    assert "not one of this statement" in found.reason


def test_the_statement_of_another_run_is_refused(
    archives: dict[str, Path], keys: tuple[Key, Key], tmp_path: Path
) -> None:
    one, two = unpacked(archives["one"], tmp_path / "1"), unpacked(archives["two"], tmp_path / "2")
    for name in ("STATEMENT", "STATEMENT.sig"):
        (one / name).write_bytes((two / name).read_bytes())
    found = verify_signature(one, keys[0].signers)
    assert (found.valid, found.signer) == (False, "ada@site.example")
    assert "is not of this run" in found.reason


def test_a_record_changed_after_the_signature_is_refused(
    archives: dict[str, Path], keys: tuple[Key, Key], tmp_path: Path
) -> None:
    folder = unpacked(archives["one"], tmp_path)
    system = folder / "systems.json"
    system.write_bytes(system.read_bytes() + b" ")
    found = verify_signature(folder, keys[0].signers)
    assert not found.valid
    assert "systems.json" in found.reason


def test_an_archive_without_a_signature_says_so(
    archives: dict[str, Path], keys: tuple[Key, Key], tmp_path: Path
) -> None:
    found = verify_signature(unpacked(archives["plain"], tmp_path), keys[0].signers)
    assert (found.valid, found.reason) == (
        False,
        "the result is not signed: it has no STATEMENT and no STATEMENT.sig",
    )


def test_an_archive_may_hold_no_other_file_than_the_two(
    archives: dict[str, Path], keys: tuple[Key, Key], tmp_path: Path
) -> None:
    folder = unpacked(archives["one"], tmp_path / "unpacked")
    (folder / "STATEMENT.txt").write_text("more")
    packed = tmp_path / "more.tar.gz"
    subprocess.run(["tar", "-czf", packed, "-C", folder.parent, folder.name], check=True)
    with pytest.raises(RunDirectoryError, match=r"STATEMENT.txt. is not a file of one"):
        open_archive(packed, tmp_path / "again")


def test_without_ssh_keygen_signing_ends_with_3_and_verifying_is_not_possible(
    archives: dict[str, Path], keys: tuple[Key, Key], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unpacked(archives["one"], tmp_path)
    run = archives["one"].with_name("one")
    target = tmp_path / "unsigned.tar.gz"
    done = aiperf("export", run, "--file", target, "--sign", keys[0].private, environment={"PATH": str(tmp_path)})
    assert done.returncode == 3
    assert "ssh-keygen is not on PATH" in done.stderr
    assert not target.exists()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentNotReadyError, match="ssh-keygen"):
        verify_signature(folder, keys[0].signers)


def test_a_file_that_is_not_a_key_cannot_sign(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("not a key")
    with pytest.raises(UsageError, match="cannot sign"):
        sign("statement\n", tmp_path / "key")


def test_missing_signers_are_a_usage_error(archives: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="signers"):
        verify_signature(unpacked(archives["one"], tmp_path), tmp_path / "no-such-file")
