"""Works that are done by other processes, of a pool or copies of this one."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from analysis.reading.workers import do_both
from analysis.results.submission_package import unsealed, write_archive
from tests.support.folders import ROOT
from tests.support.hand_made import HandMadeRun

WITH_ROOT = {**os.environ, "PYTHONPATH": str(ROOT)}


def note(folder: Path, name: str) -> str:
    """Leave the id of the process that did this."""
    (folder / name).write_text(str(os.getpid()))
    return name


def fail(message: str) -> str:
    """Raise an error."""
    raise OSError(message)


@pytest.mark.parametrize("several", [False, True])
def test_both_works_are_done_the_first_by_this_process(tmp_path: Path, several: bool) -> None:
    assert do_both(partial(note, tmp_path, "a"), partial(note, tmp_path, "b"), several) == ("a", "b")
    assert (tmp_path / "a").read_text() == str(os.getpid())


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("failing", [0, 1])
def test_the_error_of_a_work_is_raised_here(tmp_path: Path, failing: int, several: bool) -> None:
    works = [partial(note, tmp_path, "a"), partial(note, tmp_path, "b")]
    works[failing] = partial(fail, "full")
    here, there = works
    with pytest.raises(OSError, match="full"):
        do_both(here, there, several)


KILLS = """
import os, signal, sys
from aiperf.errors import EnvironmentNotReadyError
from analysis.reading.workers import Workers, do_both

own = os.getpid()

def die():
    assert os.getpid() != own
    os.kill(os.getpid(), signal.SIGKILL)

try:
    if sys.argv[1] == "pool":
        with Workers(several=True) as workers:
            workers.submit(die).result()
    else:
        do_both(int, die, several=True)
except EnvironmentNotReadyError as error:
    print(*error.lines, sep="\\n")
"""


@pytest.mark.parametrize("which", ["pool", "copy"])
def test_a_process_that_is_killed_is_named_and_leaves_no_traceback(which: str) -> None:
    # In a process of its own, which has no other threads and can be copied.
    result = subprocess.run([sys.executable, "-c", KILLS, which], capture_output=True, text=True, check=True)
    assert "was killed" in result.stdout
    assert result.stdout.count("\n") == 1


ORPHANS = """
import sys, threading
from pathlib import Path
from aiperf.processes import spawned
from analysis.reading.workers import Workers, do_both
from analysis.results.source import opened_run

def wait():
    threading.Event().wait()

def work(archive):
    with opened_run(archive) as folder:
        print(folder, flush=True)
        wait()

if __name__ == "__main__":
    archive, which = Path(sys.argv[1]), sys.argv[2]
    if which == "copy":
        do_both(wait, lambda: work(archive), several=True)
    with Workers(several=True) if which == "pool" else spawned(2) as workers:
        workers.submit(work, archive)
        wait()
"""


@pytest.mark.parametrize("which", ["pool", "copy", "spawned"])
def test_no_process_outlives_a_parent_that_was_killed(which: str, tmp_path: Path) -> None:
    archive, program = tmp_path / "run.tar.gz", tmp_path / "program.py"
    run = HandMadeRun(tmp_path / "run").at(0).release(100)
    write_archive(run.paths, archive, {}, unsealed)
    program.write_text(ORPHANS)
    words = [sys.executable, str(program), str(archive), which]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=WITH_ROOT) as process:
        assert process.stdout is not None
        unpacked = Path(process.stdout.readline().strip())
        assert unpacked.is_dir()
        process.kill()
        # All that it has started holds the pipe, so this returns only after the last of them.
        assert process.communicate(timeout=300)[0] == ""
    assert unpacked.exists() == (which == "spawned"), "the work of a report cleans up"
