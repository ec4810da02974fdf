"""Atomic writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.files import write_atomically


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
