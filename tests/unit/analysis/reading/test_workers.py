"""Works that are done by copies of a process."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from analysis.reading.workers import do_together


def note(folder: Path, name: str) -> None:
    """Leave the id of the process that did this."""
    (folder / name).write_text(str(os.getpid()))


def fail(message: str) -> None:
    """Raise an error."""
    raise OSError(message)


@pytest.mark.parametrize("several", [False, True])
def test_every_work_is_done_the_first_by_this_process(tmp_path: Path, several: bool) -> None:
    do_together([partial(note, tmp_path, name) for name in "abc"], several)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b", "c"]
    assert (tmp_path / "a").read_text() == str(os.getpid())


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("failing", [0, 1])
def test_the_error_of_a_work_is_raised_here(tmp_path: Path, failing: int, several: bool) -> None:
    works = [partial(note, tmp_path, "a"), partial(note, tmp_path, "b")]
    works[failing] = partial(fail, "full")
    with pytest.raises(OSError, match="full"):
        do_together(works, several)
