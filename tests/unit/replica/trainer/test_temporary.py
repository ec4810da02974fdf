"""Temporary folders: of one process, for its life; and that for what compilers make."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.host import this_host
from replica.trainer.temporary import COMPILER_FOLDERS, kept_programs, own_folder, remove_left_folders
from tests.support.folders import ROOT

HOLDER = """
import tempfile, sys
from replica.trainer.temporary import own_folder
tempfile.tempdir = sys.argv[1]
with own_folder() as folder:
    (folder / "file").write_text("")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def holder(temporary: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A process with a folder of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(temporary)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().rstrip())


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one_and_that_of_a_living_one_is_not(
    temporary: Path,
) -> None:
    killed, left = holder(temporary)
    living, kept = holder(temporary)
    try:
        with own_folder() as own:
            assert {*temporary.iterdir()} == {left, kept, own}
        killed.kill()
        killed.communicate()
        with own_folder() as own:
            assert {*temporary.iterdir()} == {kept, own}
    finally:
        living.communicate("")
    assert living.returncode == 0 and list(temporary.iterdir()) == []


def test_folders_of_others_stay(temporary: Path) -> None:
    """Of another node with the same directory, of another program, and what is no folder."""
    prefix = f"aiperf-{this_host().name()}+"
    target = temporary / "target"
    for name in ("target", "aiperf-home-1", "aiperf-another+1"):
        (temporary / name).mkdir()
    (temporary / f"{prefix}file").write_text("")
    (temporary / f"{prefix}link").symlink_to(target)
    before = {*temporary.iterdir()}
    remove_left_folders()
    assert {*temporary.iterdir()} == before


def test_a_folder_that_is_taken_for_a_left_one_before_it_is_locked_is_made_anew(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[str]()

    def made_and_removed(prefix: str) -> str:
        folder = temporary / f"{prefix}{len(made)}"
        folder.mkdir()
        made.append(str(folder))
        if len(made) == 1:
            remove_left_folders()
        return str(folder)

    monkeypatch.setattr("tempfile.mkdtemp", made_and_removed)
    with own_folder() as folder:
        assert len(made) == 2 and str(folder) == made[1]
        remove_left_folders()
        assert folder.exists()


def test_programs_are_kept_in_a_folder_of_ones_own_that_ends_with_the_run(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in COMPILER_FOLDERS:
        monkeypatch.delenv(name, raising=False)
    with kept_programs(True) as variables:
        (folder,) = temporary.iterdir()
        assert variables.keys() == COMPILER_FOLDERS.keys()
        assert {Path(value).parent for value in variables.values()} == {folder}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        Path(variables["TORCHINDUCTOR_CACHE_DIR"]).mkdir()
    assert list(temporary.iterdir()) == []


def test_a_folder_that_the_operator_chose_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in COMPILER_FOLDERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/fast/programs")
    with kept_programs(True) as variables:
        assert variables.keys() == COMPILER_FOLDERS.keys() - {"TORCHINDUCTOR_CACHE_DIR"}
    with kept_programs(False) as variables:
        assert variables == {} and list(temporary.iterdir()) == []
