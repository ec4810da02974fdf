"""The end of child processes and of their own children."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.errors import EXIT_ENVIRONMENT
from aiperf.processes import end_group, python_module, spawn
from tests.support.hand_made import HandMadeRun
from tests.support.processes import lives
from tests.support.runs import wait_for

# A child in a group of its own (as salloc starts its command) that keeps the pipes open and does
# not end.
STUBBORN_CHILD = """
import os, signal, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"],
    process_group=0,
)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_the_end_reaches_children_in_groups_of_their_own(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, int]:
        process = await spawn([sys.executable, "-c", STUBBORN_CHILD], tmp_path / "log")
        assert process.stdout is not None
        child = int(await process.stdout.readline())
        return child, await end_group(process, 1)

    child, code = asyncio.run(scenario())
    assert code == -signal.SIGTERM
    wait_for(lambda: not lives(child))


def test_the_end_does_not_wait_for_a_process_that_keeps_the_pipes_open(tmp_path: Path) -> None:
    async def scenario() -> int:
        ignoring = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        away = ignoring + STUBBORN_CHILD.replace("process_group=0", "start_new_session=True")
        process = await spawn([sys.executable, "-c", away], tmp_path / "log")
        assert process.stdout is not None
        child = int(await process.stdout.readline())
        async with asyncio.timeout(20):
            code = await end_group(process, 1)
        assert lives(child)
        os.kill(child, signal.SIGKILL)
        while await process.stdout.read():
            pass  # the pipes are free now
        return code

    assert asyncio.run(scenario()) == -signal.SIGKILL


@pytest.mark.parametrize("given", ["</dev/null", "<&-", "<words"])
@pytest.mark.parametrize("module", ["replica", "replica.agent.examine"])
def test_a_program_without_a_pipe_to_the_primary_ends_at_once(module: str, given: str, tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"training.trainer": "simulated"})
    words = ("--run", str(run.paths.root)) if module == "replica" else ()
    (tmp_path / "words").touch()
    command = shlex.join(python_module(module, *words, "--replica", "0"))
    done = subprocess.run(
        ["sh", "-c", f"exec {command} {given.replace('words', shlex.quote(str(tmp_path / 'words')))}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXIT_ENVIRONMENT
    assert "run a container with -i" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


POOL = """
import signal, sys, threading
from pathlib import Path
from aiperf.processes import spawned

def job(folder, number):
    try:
        Path(folder, f"begun-{number}").touch()
        threading.Event().wait()
    finally:
        Path(folder, f"cleaned-{number}").touch()

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with spawned(2) as pool:
            for future in [pool.submit(job, sys.argv[1], number) for number in range(9)]:
                future.result()
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_ends_the_jobs_of_a_pool_which_clean_up_and_say_nothing(tmp_path: Path) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "jobs"
    script.write_text(POOL)
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, script, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        wait_for(lambda: len([*folder.glob("begun-*")]) == 2)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=240)
    assert said == ("interrupted\n", "")
    assert {file.name for file in folder.iterdir()} == {"begun-0", "begun-1", "cleaned-0", "cleaned-1"}
