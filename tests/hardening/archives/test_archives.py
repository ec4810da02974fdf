"""Archives from other people: unpacked as packed, or refused; nothing is left, nothing outside."""

import gzip
import io
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiperf.errors import EnvironmentNotReadyError
from aiperf.run_directory.paths import RunPaths
from analysis.results import submission_package as archives
from analysis.results.source import RunResult, opened_run, read_result, try_result
from analysis.results.submission_package import LEAST_LIMIT, PACKED_AT, write_archive
from tests.hardening.archives.hostile import (
    ADDED,
    bomb,
    damaged,
    many_members,
    plain,
    sized,
    summed,
    twice,
    with_members,
)
from tests.support.fuzz import examples, refusal
from tests.support.hand_made import HandMadeRun


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("honest")
    run = HandMadeRun(folder / "run").at(0).release(60).at(1).start_trial(1).at(30).epoch(1, 1).support(60).end(60)
    write_archive(run.paths, folder / "run.tar.gz", {"name": "system"})
    return (folder / "run.tar.gz").read_bytes()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the temporary folder `unpacked` and nothing else."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "unpacked"))
    (tmp_path / "unpacked").mkdir()
    return tmp_path


def refused(place: Path, content: bytes) -> str:
    """The message about an archive; empty if it is accepted. Nothing may be left of it."""
    file = place / "what.tar.gz"
    file.write_bytes(content)
    message = refusal(lambda: read_result(file))
    assert sorted(item.name for item in place.iterdir()) == ["unpacked", "what.tar.gz"]
    assert list((place / "unpacked").iterdir()) == []
    return message


def test_an_honest_archive_is_accepted(honest: bytes, place: Path) -> None:
    assert refused(place, honest) == ""


def test_an_honest_archive_that_tar_packed_again_is_accepted(honest: bytes, place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    (tmp_path / "honest.tar.gz").write_bytes(honest)
    subprocess.run(["tar", "-xzf", tmp_path / "honest.tar.gz", "-C", folder], check=True)
    subprocess.run(["tar", "-czf", tmp_path / "again.tar.gz", "-C", folder, "run"], check=True)
    assert isinstance(try_result(tmp_path / "again.tar.gz"), RunResult)


def test_an_archive_packed_on_a_mac_or_without_its_folder_is_accepted(
    honest: bytes, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "honest.tar.gz").write_bytes(honest)
    subprocess.run(["tar", "-xzf", tmp_path / "honest.tar.gz", "-C", tmp_path], check=True)
    assert {path.stat().st_mtime for path in (tmp_path / "run").rglob("*") if path.is_file()} == {PACKED_AT}
    assert time.gmtime(PACKED_AT - 14 * 3600).tm_year == 1980
    for name in ("._run.json", ".DS_Store", "history/._primary-1.jsonl"):
        (tmp_path / "run" / name).write_bytes(b"\0\5\x16\7")
    for words in (["-C", str(tmp_path), "run"], ["-C", str(tmp_path / "run"), "."]):
        subprocess.run(["tar", "-czf", tmp_path / "again.tar.gz", *words], check=True)
        assert isinstance(try_result(tmp_path / "again.tar.gz"), RunResult)
        assert "3 files of other programs are ignored: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ADDED)
def test_an_archive_with_anything_else_is_refused(name: str, honest: bytes, place: Path) -> None:
    message = refused(place, with_members(honest, ADDED[name]))
    assert message.startswith(f"{place}/what.tar.gz")
    assert message.replace("\n", "").isprintable(), "no name of a member reaches a terminal as it is"


def test_a_member_that_comes_twice_is_refused(honest: bytes, place: Path) -> None:
    assert "cannot be unpacked" in refused(place, twice(honest))


@pytest.mark.parametrize("unit", [b"\n", b"\0", b"{}\n", b"[", b'{"version":2,"writer":"x"}\n'])
def test_a_bomb_is_refused_before_it_is_unpacked(unit: bytes, place: Path) -> None:
    """As does one of 3 GB in 3 MB, which is refused by the same member."""
    for name in ("run/telemetry/x.jsonl", "run/history/primary-1.jsonl", "run/report/x", "run/SHA256SUMS"):
        assert "larger than it may be" in refused(place, bomb(name, 8, unit))


def test_the_announced_size_decides_not_the_content(place: Path) -> None:
    claim = gzip.compress(sized("run/telemetry/x.jsonl", 3 << 30) + b"\n" * 1000)
    assert "larger than it may be" in refused(place, claim)


def package(folder: Path, replicas: int, telemetry: bytes) -> bytes:
    """An archive of a run with these replicas and samples."""
    run = HandMadeRun(folder / "large", {"run.replicas": replicas}).at(0).release(60).end(60)
    run.paths.telemetry.mkdir(exist_ok=True)
    (run.paths.telemetry / "replica-0000-1-node-0.jsonl").write_bytes(telemetry)
    write_archive(run.paths, folder / "large.tar.gz", {"name": "system"})
    return (folder / "large.tar.gz").read_bytes()


@pytest.mark.parametrize(("replicas", "fits"), [(4, True), (2, False)])
def test_a_run_of_more_replicas_may_have_more_bytes(
    replicas: int, fits: bool, place: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, samples = tmp_path_factory.mktemp("large"), random.Random(1).randbytes(3 << 20)
    content = package(folder, replicas, samples)
    monkeypatch.setattr(archives, "BASE_BYTES", 1 << 20)
    monkeypatch.setattr(archives, "REPLICA_BYTES", 1 << 20)
    assert ("larger than it may be" in refused(place, content)) != fits
    with nullcontext() if fits else pytest.raises(EnvironmentNotReadyError, match="a package may have 3,145,728"):
        write_archive(RunPaths(folder / "large"), folder / "again.tar.gz", {"name": "system"})


@pytest.mark.parametrize("replicas", [b"1000000000", b"9" * 4000, b"-5", b"1e300", b'"many"', b"[]", b"true"])
def test_replicas_that_are_only_claimed_give_a_bomb_no_room(replicas: bytes, place: Path) -> None:
    manifest = plain("run/run.json", b'{"config": {"run": {"replicas": %b}}}' % replicas)
    content = manifest + gzip.decompress(bomb("run/telemetry/x.jsonl", 8, b"\n"))
    assert "larger than it may be" in refused(place, gzip.compress(content, 9))


def test_the_largest_runs_are_packed() -> None:
    """4,096 nodes with 16 accelerators each, for 12 hours; but none without a limit."""
    assert archives.most_bytes(b'{"config": {"run": {"replicas": 4096}}}') > 4096 * 12 * 2**20
    assert archives.most_bytes(b'{"config": {"run": {"replicas": 1%b}}}' % (b"0" * 300)) == archives.MOST_BYTES


def test_very_many_empty_files_are_refused(place: Path) -> None:
    """Each packs to a few bytes, and costs a name on the disk."""
    assert "larger than it may be" in refused(place, many_members(1 + LEAST_LIMIT // 512))


@pytest.mark.parametrize("number", range(4))
def test_damaged_archives_are_refused_or_hold_the_same(number: int, honest: bytes, place: Path) -> None:
    content = gzip.decompress(honest)
    for _, data in damaged(honest, number):
        if not refused(place, data):
            with tarfile.open(place / "what.tar.gz") as archive, tarfile.open(fileobj=io.BytesIO(content)) as first:
                assert [m.name for m in archive] == [m.name for m in first]


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=2000), st.booleans())
def test_any_bytes_that_gzip_or_tar_may_have_made(honest: bytes, place: Path, data: bytes, header: bool) -> None:
    refused(place, gzip.compress(data) if header else b"\x1f\x8b" + data)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_header(honest: bytes, place: Path, data: st.DataObject) -> None:
    """Fields of a header at will, with a checksum that fits."""
    header = bytearray(gzip.decompress(honest)[:512])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, 511))
        new = data.draw(st.binary(min_size=1, max_size=12))
        header[start : start + len(new)] = new
    refused(place, with_members(honest, summed(bytes(header))))


def test_nothing_is_left_when_a_check_is_ended(honest: bytes, tmp_path: Path) -> None:
    """By SIGTERM and by the end of the terminal, while the archive is open."""
    (tmp_path / "run.tar.gz").write_bytes(honest)
    (tmp_path / "temporary").mkdir()
    program = (
        "import sys, signal\nfrom pathlib import Path\nfrom analysis.results.source import opened_run\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the tests may run under nohup
        "with opened_run(Path(sys.argv[1])):\n    print('open', flush=True)\n    signal.pause()\n"
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        process = subprocess.Popen(
            [sys.executable, "-c", program, tmp_path / "run.tar.gz"],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        assert len(list((tmp_path / "temporary").iterdir())) == 1
        process.send_signal(number)
        assert process.wait() == 128 + number
        process.stdout.close()
        assert list((tmp_path / "temporary").iterdir()) == []


def test_the_handlers_of_signals_are_as_before(honest: bytes, place: Path) -> None:
    (place / "run.tar.gz").write_bytes(honest)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    with opened_run(place / "run.tar.gz"):
        pass
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)) == before
