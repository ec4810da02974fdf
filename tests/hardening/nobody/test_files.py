"""Files, folders and local sockets of runs in progress, and of runs that are to be resumed."""

import ast
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.run_directory.ownership import foreign_hands
from tests.hardening.nobody.conftest import LiveRun, environment_in
from tests.support.folders import ROOT
from tests.support.hand_made import SIMULATED, HandMadeRun, aiperf
from tests.support.outsiders.listeners import local_names
from tests.support.outsiders.strangers import NOBODY, all_that_comes, as_nobody, need_root
from tests.support.runs import wait_for


def below(folder: Path) -> Iterator[Path]:
    """A folder and everything in it that is no link; files may vanish meanwhile."""
    yield folder
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            if not path.is_symlink():
                yield path


def writable_by_others(folder: Path) -> list[str]:
    found = []
    for path in below(folder):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            continue
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            found.append(f"{path} {stat.filemode(mode)}")
    return found


@pytest.fixture(params=["native", "under_nni"])
def run(request: pytest.FixtureRequest) -> LiveRun:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, LiveRun)
    return found


def test_no_file_of_a_run_can_be_written_by_others_whatever_the_umask(run: LiveRun) -> None:
    assert len(list(below(run.output))) > 20
    assert writable_by_others(run.output) == []
    assert [name for name in writable_by_others(run.temporary) if not name.startswith(f"{run.temporary} ")] == []


def test_another_user_changes_nothing_in_a_run_directory(run: LiveRun) -> None:
    need_root()
    paths = list(below(run.output))
    with as_nobody():
        changed = [path for path in paths if os.access(path, os.W_OK, effective_ids=True)]
        readable = [path for path in paths if os.access(path, os.R_OK, effective_ids=True)]
    assert changed == []
    assert run.output / "run.json" in readable, "results are not secret (docs/security.md)"


def test_another_user_sees_nothing_of_the_temporary_files(run: LiveRun) -> None:
    need_root()
    entries = [path for path in run.temporary.iterdir() if path.exists()]
    with as_nobody():
        assert [path for path in entries if os.access(path, os.R_OK | os.X_OK, effective_ids=True)] == []


def test_the_sockets_of_trainings_send_nothing_to_another_user(native: LiveRun) -> None:
    need_root()
    answers = list[bytes]()

    def asked() -> bool:
        for name in local_names(native.family()):
            try:
                answers.append(all_that_comes(name))
            except ConnectionRefusedError:  # its training has begun or ended
                continue
        return len(answers) >= 3

    wait_for(asked, 400)
    assert set(answers) == {b""}


def ended(root: Path) -> Path:
    """A run that has reached its deadline, which `resume` says once it has looked at the files."""
    HandMadeRun(root).at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1).end(100)
    for path in below(root):
        path.chmod(path.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))
    return root


def test_resume_refuses_what_others_can_write_until_they_cannot(tmp_path: Path) -> None:
    root = ended(tmp_path / "a run")
    (root / "run.json").chmod(0o646)
    refused = aiperf("resume", root)
    assert refused.returncode == 2, refused.stderr
    remedy = f"chmod -R go-w '{root}'"
    assert f"{root}/run.json can be written by other users" in refused.stderr
    assert remedy in refused.stderr
    subprocess.run(remedy, shell=True, check=True)
    assert "has reached its deadline" in aiperf("resume", root).stderr


def test_resume_refuses_the_files_of_another_owner(tmp_path: Path) -> None:
    need_root()
    root = ended(tmp_path / "run")
    os.chown(root / "run.json", NOBODY, NOBODY)
    refused = aiperf("resume", root)
    assert refused.returncode == 2, refused.stderr
    assert f"{root}/run.json belongs to nobody, not to you" in refused.stderr


@pytest.mark.parametrize("name", [".", "run.json", "history", "models"])
@pytest.mark.parametrize("right", [stat.S_IWOTH, stat.S_IWGRP, None], ids=["others", "group", "owner"])
def test_every_file_counts(tmp_path: Path, name: str, right: int | None) -> None:
    root = ended(tmp_path / "run")
    assert foreign_hands(root) == []
    path = root / name
    if right is None:
        need_root()
        os.chown(path, NOBODY, NOBODY)
    else:
        path.chmod(path.stat().st_mode | right)
    (problem,) = foreign_hands(root)
    assert problem.startswith(f"{path} ")


def test_a_run_does_not_begin_in_a_folder_that_others_can_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    refused = aiperf("run", *SIMULATED, "--duration", "1s", "--output", tmp_path)
    assert refused.returncode == 2, refused.stderr
    assert f"chmod -R go-w {tmp_path}" in refused.stderr
    assert list(tmp_path.iterdir()) == []


WRITERS = [
    "aiperf/__main__.py",
    "replica/__main__.py",
    "replica/trainer/__main__.py",
    "replica/trainer/simulated.py",
    "primary/nni/__main__.py",
    "primary/nni/trial.py",
]
"""Programs that write into run directories. Starters on other nodes may begin with any umask."""


@pytest.mark.parametrize("name", WRITERS)
def test_every_program_that_writes_into_runs_begins_with_its_umask(name: str) -> None:
    tree = ast.parse((ROOT / name).read_text())
    calls = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert "keep_others_from_writing" in calls


@pytest.mark.parametrize(("before", "after"), [(0o000, 0o022), (0o002, 0o022), (0o077, 0o077), (0o027, 0o027)])
def test_a_stricter_umask_stays(before: int, after: int, tmp_path: Path) -> None:
    program = "import os; from aiperf.files import keep_others_from_writing as k; k(); print(os.umask(0))"
    shown = subprocess.run(
        [sys.executable, "-c", program], env=environment_in(tmp_path), umask=before, stdout=subprocess.PIPE, check=True
    ).stdout
    assert int(shown) == after
