"""Atomic writes and temporary folders."""

import errno
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from aiperf.files import cache_folder, remove_temporaries, temporary_folder, write_atomically
from aiperf.storage.durable import volatile


def test_atomic_writes_leave_the_old_file_and_no_rest_when_they_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a" / "file.json"
    write_atomically(target, b"old")

    def fail(self: Path, other: Path) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="No space"):
            write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in target.parent.iterdir()] == ["file.json"]


def test_only_a_volatile_context_leaves_it_to_the_system_when_bytes_reach_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with volatile():
        write_atomically(tmp_path / "file", b"made again if lost")
    assert (tmp_path / "file").read_bytes() == b"made again if lost"
    assert synced == []
    write_atomically(tmp_path / "file", b"kept")
    assert len(synced) == 2  # the file and its name


def test_a_temporary_folder_goes_whole_even_if_its_removal_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter([KeyboardInterrupt])
    real = os.rmdir

    def interrupted(*arguments: Any, **options: Any) -> None:
        for error in calls:
            raise error
        real(*arguments, **options)

    monkeypatch.setattr(os, "rmdir", interrupted)
    with pytest.raises(KeyboardInterrupt), temporary_folder("aiperf-", tmp_path) as folder:
        (folder / "run").mkdir()
        (folder / "run" / "file").write_text("some text")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["open", "unlink", "scandir", "stat"])
def test_a_folder_is_tidied_though_one_call_after_the_other_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    (tmp_path / "history").mkdir()
    for folder in (tmp_path, tmp_path / "history"):
        (folder / ".report.json.12ab.tmp").write_text("half of it")
    real, calls = getattr(os, call), itertools.count()

    def fails_now_and_then(*arguments: Any, **options: Any) -> Any:
        if next(calls) % 2 == 0:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(*arguments, **options)

    monkeypatch.setattr(os, call, fails_now_and_then)
    assert remove_temporaries(tmp_path) >= 2
    monkeypatch.undo()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_cache_that_is_no_absolute_path_is_that_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the XDG Base Directory Specification."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == tmp_path / ".cache" / "aiperf"
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_folder() == Path("/cache/aiperf")
