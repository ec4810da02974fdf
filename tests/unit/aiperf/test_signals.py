"""Warnings of schedulers: held from the start, heeded once, harmless at the end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from aiperf import signals
from primary.launchers.relays import remote

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
