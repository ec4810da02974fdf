"""Warnings of schedulers: held from the start, heeded once, harmless at the end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from aiperf import signals
from aiperf.processes import python_module
from primary.launchers.relays import remote
from tests.support.processes import all_end, ask

PROGRAM = """
import asyncio, os, signal, sys
from aiperf.signals import heed, heeded, hold_warnings
from aiperf.processes import spawn
from pathlib import Path

number, kind = int(sys.argv[1]), sys.argv[2]
hold_warnings()
os.kill(os.getpid(), number)  # at the start: it is not lost
lines = []

async def main():
    ended = asyncio.Event()
    heed(ended.set, note=lines.append)
    if number == signal.SIGUSR1:
        while not lines:
            await asyncio.sleep(0.01)
        assert not ended.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
    await ended.wait()
    shown = "import signal; print(sorted(signal.pthread_sigmask(0, ())))"
    child = await spawn([sys.executable, "-c", shown], Path(os.devnull))
    blocked = await child.stdout.read()
    assert blocked.decode().count("SIG") == 3, blocked
    await child.wait()

def plain():
    seen = []
    with heeded(lambda: seen.append(1)):
        if number == signal.SIGUSR1:
            os.kill(os.getpid(), signal.SIGTERM)
        while not seen:
            pass

asyncio.run(main()) if kind == "loop" else plain()
for each in signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU:
    os.kill(os.getpid(), each)  # while the end is written
for _ in range(1000):
    pass
print(*lines, "done", sep="|")
"""


@pytest.mark.parametrize("kind", ["loop", "plain"])
@pytest.mark.parametrize("number", signals.WARNINGS)
def test_a_warning_at_any_time_ends_a_program_in_order_or_is_noted(number: signal.Signals, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(number)), kind], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("done\n")
    assert kind == "plain" or number.name in done.stdout


def test_the_relay_which_has_no_module_of_ours_heeds_the_same() -> None:
    assert remote.WARNINGS == signals.WARNINGS
    assert set(signals.ENDING) < set(remote.ENDING)
    assert signals.NOTED not in remote.ENDING


CHILD = """
import os, sys, time
from pathlib import Path
from aiperf.signals import PARENT, die_with_parent

while sys.argv[1] == "late" and str(os.getppid()) == os.environ[PARENT]:
    time.sleep(0.01)  # as one that is importing while its parent is killed
die_with_parent()
assert PARENT not in os.environ
Path(sys.argv[2]).touch()
time.sleep(600)
"""

STARTING = """
import os, signal, subprocess, sys, time
from pathlib import Path
from aiperf.signals import PARENT

child = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], env={**os.environ, PARENT: str(os.getpid())})
print(child.pid, flush=True)
while sys.argv[2] == "in time" and not Path(sys.argv[3]).exists():
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["in time", "late"])
def test_a_process_does_not_outlive_a_parent_that_was_killed_before_it_asked(when: str, tmp_path: Path) -> None:
    works = tmp_path / "works"
    words = [sys.executable, "-c", STARTING, CHILD, when, str(works)]
    starter = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    with starter.stdout:
        child = psutil.Process(int(starter.stdout.readline()))
        try:
            assert starter.wait() == -signal.SIGKILL
            assert all_end([child])
            assert works.exists() == (when == "in time")
        finally:
            ask(child.kill, None)


def test_a_program_of_others_is_told_no_parent() -> None:
    assert signals.not_to_outlive(python_module("replica.trainer")) == {signals.PARENT: str(os.getpid())}
    assert signals.not_to_outlive(["mpirun", "-np", "2", *python_module("replica.trainer")]) == {}
