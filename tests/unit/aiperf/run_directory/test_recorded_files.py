"""Files that the record of a run's end names by their first bytes."""

import errno
from pathlib import Path

import pytest

from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.recorded_files import beginnings, changed_files
from aiperf.storage.patience import PATIENCE
from tests.support.machines import refuse


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    paths = RunPaths(tmp_path)
    paths.telemetry.mkdir()
    paths.system.write_text("{}\n")
    paths.telemetry_file("replica-0000-1-a").write_bytes(b"1\n2\n3")
    return paths


def test_samples_that_come_later_change_nothing(paths: RunPaths) -> None:
    found = tuple(beginnings(paths))
    assert [(name, size) for name, size, _ in found] == [("system.json", 3), ("telemetry/replica-0000-1-a.jsonl", 4)]
    paths.telemetry_file("replica-0000-1-a").write_bytes(b"1\n2\n3\n4\n")
    paths.telemetry_file("replica-0001-1-b").write_bytes(b"1\n")
    assert list(changed_files(paths, found)) == []
    assert list(changed_files(paths, ())) == []


def test_storage_that_refuses_for_a_while_is_waited_for(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuple(beginnings(paths))
    refuse(monkeypatch, errno.ESTALE, errno.EIO)
    with PATIENCE.set(60):
        assert tuple(beginnings(paths)) == found


def test_bytes_that_are_not_seen_yet_are_left_out(paths: RunPaths) -> None:
    """Over NFS a page that another node has appended may be zeros at first."""
    file = paths.telemetry_file("replica-0000-1-a")
    file.write_bytes(b"1\n2\n\0\0\n\0")
    found = tuple(beginnings(paths))
    file.write_bytes(b"1\n2\n33\n4")
    assert list(changed_files(paths, found)) == []


@pytest.mark.parametrize("content", [b"1\n4\n3", b"1\n", b""])
def test_other_bytes_are_found(content: bytes, paths: RunPaths) -> None:
    found = tuple(beginnings(paths))
    paths.telemetry_file("replica-0000-1-a").write_bytes(content)
    assert list(changed_files(paths, found)) == [("telemetry/replica-0000-1-a.jsonl", "its first 4 bytes are others")]


def test_a_missing_file_and_one_outside_of_the_run_are_named(paths: RunPaths) -> None:
    found = [("../../etc/passwd", 1, "0" * 64), *beginnings(paths)]
    paths.system.unlink()
    missing = [name for name, problem in changed_files(paths, found) if problem == "it is missing"]
    assert missing == ["../../etc/passwd", "system.json"]
