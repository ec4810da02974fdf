"""Interrupt `make env` at any moment and repeat it: `python -m tools.check_interruptions FOLDER`.

In copies of the sources below FOLDER, with the locked packages. Each round begins without an
environment, starts `make env`, ends it at a drawn moment, and starts it again, which must end
whole: every file that pip noted is there in its length, the packages are those of an environment
that nothing disturbed, TensorFlow can be imported, and the doctor finds nothing that fails. Then
the same of two `make env` at once, of a checkout that was moved and of one that was copied, each
of which must run its own code. Moments are counted in CPU time, so that a round is the same on a
busy machine. Takes 6 GB in FOLDER, and about four minutes of CPU time for each round; `--only`
cuts the lock to some packages, for rounds that cost less: without TensorFlow among them, neither
it nor the doctor is tried.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from aiperf.clock import SystemClock
from tools.check_installation import copy_sources

MAKE = ("make", "env", "GPU=0", f"PYTHON={sys.executable}")
DOCTOR = ("doctor", "--preset", "quick", "--replicas", "1", "--no-probe")
INVENTORY = """
import csv, importlib.metadata, json, os
found, defects = [], []
for package in importlib.metadata.distributions():
    found.append(f"{package.metadata['Name']}=={package.version}")
    # From Python 3.12 on, package.files leaves out what is missing.
    for name, _, size in csv.reader((package.read_text("RECORD") or f"{found[-1]} has no list,,").splitlines()):
        path = str(package.locate_file(name))
        if not os.path.exists(path) or size not in ("", str(os.path.getsize(path))):
            defects.append(path)
print(json.dumps([sorted(found), defects]))
"""
HOME = "import aiperf; print(aiperf.__file__)"


@dataclass(frozen=True)
class Way:
    """A signal, and the processes that get it."""

    name: str
    number: signal.Signals
    reaches: Callable[[int], list[int]]
    """The processes, given the group of `make`."""


def group(leader: int) -> list[int]:
    """Every process of a group, as a terminal's Ctrl-C and the end of a job reach them."""
    return [-leader]


def tool_alone(leader: int) -> list[int]:
    """The process of tools/environment.py: what it started outlives it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if os.getpgid(int(entry.name)) == leader and b"tools.environment" in words:
                found.append(int(entry.name))
        except (OSError, ProcessLookupError):
            continue
    return found


@dataclass(frozen=True)
class Undisturbed:
    """An environment that was made without interruption."""

    cpu_s: float
    packages: list[str]


WAYS = (
    Way("SIGINT to all", signal.SIGINT, group),
    Way("SIGKILL to all", signal.SIGKILL, group),
    Way("SIGINT to all", signal.SIGINT, group),
    Way("SIGKILL to tools.environment alone", signal.SIGKILL, tool_alone),
)


class Checkout:
    """A copy of the sources, and its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def environment(self) -> Path:
        """Its environment."""
        return self.folder / ".venv"

    def clear(self) -> None:
        """Remove its environment."""
        for path in (self.environment, self.folder / ".venv.lock"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def start(self) -> subprocess.Popen[str]:
        """Start `make env` in a group of its own."""
        return subprocess.Popen(
            MAKE,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            # A job in a shell's background ignores it, which programs inherit.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def packages(self) -> list[str]:
        """The packages that it has, each whole. Raises AssertionError, CalledProcessError."""
        found, defects = json.loads(self.python(INVENTORY))
        if defects:
            raise AssertionError(f"{len(defects)} files are missing or cut, first {defects[0]}")
        return list(map(str, found))

    def python(self, text: str) -> str:
        """What a program of the environment prints, started outside of the sources."""
        done = subprocess.run(
            [self.environment / "bin" / "python", "-c", text], cwd="/", capture_output=True, text=True, check=True
        )
        return done.stdout

    def check(self, packages: list[str]) -> None:
        """Raise AssertionError or CalledProcessError unless it is whole and runs its own code."""
        if self.packages() != packages:
            raise AssertionError(f"other packages: {sorted(set(self.packages()) ^ set(packages))}")
        program = self.environment / "bin" / "aiperf"
        subprocess.run([program, "--version"], cwd="/", capture_output=True, check=True)
        if any(name.startswith("tensorflow") for name in packages):
            self.python("import tensorflow")
            subprocess.run([program, *DOCTOR], cwd=self.folder, capture_output=True, check=True)
        if not Path(self.python(HOME).strip()).is_relative_to(self.folder):
            raise AssertionError(f"runs the code of {self.python(HOME).strip()}")


def made(checkout: Checkout) -> str:
    """Let `make env` end, and return what it said. Raises CalledProcessError."""
    process = checkout.start()
    said = process.communicate()[1]
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, MAKE, stderr=said)
    return said


def interrupted(checkout: Checkout, moment_s: float, way: Way) -> str:
    """End a new `make env` once it took so much CPU time: where it was; empty if it had ended."""
    checkout.clear()
    process = checkout.start()
    clock = SystemClock()
    while process.poll() is None and spent(process.pid) < moment_s:
        clock.pause(0.05)
    for number in way.reaches(process.pid) if process.poll() is None else ():
        os.kill(number, way.number)
    # An orphan keeps standard error open until it has ended.
    orphaned = way.reaches is tool_alone and process.wait() and process.stderr
    last = "" if orphaned else process.communicate()[1].strip().rpartition("\n")[2].removeprefix("environment: ")
    if orphaned:
        orphaned.close()
    files = sum(len(names) for _, _, names in os.walk(checkout.environment))
    return f"{files} files; {last or 'killed'}" if process.returncode else ""


def spent(leader: int) -> float:
    """Seconds of CPU time of a process, of what it started and of what that started."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(leader)
        for process in (first, *first.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])
    return total


def rounds(checkout: Checkout, numbers: range, seed: int, undisturbed: Undisturbed) -> list[str]:
    """Interrupt and make again in each of the rounds; what was wrong."""
    wrong = []
    for number in numbers:
        draws = random.Random(f"{seed} {number}")  # noqa: S311 (moments, no secrets)
        way, place = WAYS[number % len(WAYS)], ""
        while not place:
            moment = draws.uniform(0, undisturbed.cpu_s)
            place = interrupted(checkout, moment, way)
        try:
            made(checkout)
            checkout.check(undisturbed.packages)
            result = "whole"
        except (AssertionError, subprocess.CalledProcessError) as error:
            result = f"WRONG: {error}: {str(getattr(error, 'stderr', '') or '')[-500:]}"
            wrong.append(f"round {number}: {result}")
        print(f"{number:3} {way.name} after {moment:5.1f} s ({place}): {result}", flush=True)
    return wrong


def others(checkout: Checkout, packages: list[str]) -> list[str]:
    """Two at once, a copy and a move; what was wrong. Leaves no checkout where it was."""
    wrong = []
    copied, moved = Checkout(checkout.folder.with_name("copied")), Checkout(checkout.folder.with_name("moved"))

    def two_at_once() -> Checkout:
        checkout.clear()
        processes = [checkout.start(), checkout.start()]
        said = [process.communicate()[1] for process in processes]
        if (
            any(process.returncode for process in processes)
            or sum("another process makes" in text for text in said) != 1
        ):
            raise AssertionError(str(said))
        return checkout

    def a_copy() -> Checkout:
        shutil.rmtree(copied.folder, ignore_errors=True)
        shutil.copytree(checkout.folder, copied.folder, symlinks=True)
        made(copied)
        checkout.check(packages)
        return copied

    def a_move() -> Checkout:
        shutil.rmtree(moved.folder, ignore_errors=True)
        checkout.folder.rename(moved.folder)
        made(moved)
        return moved

    for case in (two_at_once, a_copy, a_move):
        try:
            case().check(packages)
            print(f"{case.__name__}: whole", flush=True)
        except (AssertionError, subprocess.CalledProcessError) as error:
            wrong.append(f"{case.__name__}: {error}: {str(getattr(error, 'stderr', '') or '')[-500:]}")
    return wrong


def cut(lock: Path, names: frozenset[str]) -> None:
    """Remove all other packages from a lock."""
    entries = re.split(r"^(?=[\w.-]+==)", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lock.write_text("".join(text for text in entries if text.partition("==")[0] in names), encoding="utf-8")


def main(words: list[str]) -> int:
    """Try everything; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.check_interruptions")
    parser.add_argument("folder", type=lambda text: Path(text).resolve())
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--rounds", type=int, default=20, help="how many; 0: only the other cases")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--rounds-alone", action="store_true", help="without the other cases")
    parser.add_argument("--only", default="", metavar="NAME,...", help="the packages of the lock that are installed")
    arguments = parser.parse_args(words)
    checkout, kept = Checkout(arguments.folder / "checkout"), arguments.folder / "undisturbed.json"
    copy_sources(checkout.folder)
    if arguments.only:
        cut(checkout.folder / "requirements" / "run.txt", frozenset(arguments.only.split(",")))
    if not kept.exists():  # a later part of the rounds needs it, too
        before = sum(os.times()[2:4])
        made(checkout)
        cpu_s = sum(os.times()[2:4]) - before
        checkout.check(packages := checkout.packages())
        kept.write_text(json.dumps([cpu_s, packages]), encoding="utf-8")
    undisturbed = Undisturbed(*json.loads(kept.read_text(encoding="utf-8")))
    print(f"undisturbed: {undisturbed.cpu_s:.1f} s of CPU time, {len(undisturbed.packages)} packages", flush=True)
    numbers = range(arguments.first, arguments.first + arguments.rounds)
    wrong = rounds(checkout, numbers, arguments.seed, undisturbed)
    wrong += [] if arguments.rounds_alone else others(checkout, undisturbed.packages)
    print("\n".join(wrong) or "all of it ended whole")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
