"""The judge of the corpus: tracebacks, hangs, long messages, memory, and files outside.

Inputs are handed over in processes of their own, some at a time: one that fills the memory or hangs
costs its process.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType

from aiperf.untrusted.text import MESSAGE_BYTES
from tests.hardening.corpus import files, runs, science, texts
from tests.hardening.corpus.case import Case

ROWS: dict[str, tuple[int, Callable[[], Iterator[Case]]]] = {
    "settings": (2847, texts.settings),
    "toml": (76, texts.toml),
    "yaml": (143, texts.yaml),
    "paths": (931, texts.paths),
    "archives": (111, files.archives),
    "keras": (43, files.keras),
    "data sets": (65, files.data_sets),
    "imagenet": (34, files.imagenet),
    "science": (190, science.rows),
    "damaged runs": (756, runs.damaged),
    "absurd records": (75, runs.absurd),
}
"""Rows with the least number of their inputs."""

AT_A_TIME = 100

MOST_SECONDS = 10
"""Of the processor's time, for one input: other processes do not make a reader slow."""

MOST_GROWTH_BYTES = 1 << 30
"""Of a process, over all of its inputs."""

MOST_MESSAGE = 2 * MESSAGE_BYTES
"""Of a reader: two messages at most, of all that a case asks."""


class HangError(BaseException):
    """An input took too long; no reader may catch it."""


@dataclass
class Tally:
    """The figures of a row."""

    inputs: int = 0
    refused: int = 0
    flaws: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count another part of the row."""
        self.inputs += other.inputs
        self.refused += other.refused
        self.flaws += other.flaws


def judged(name: str, every: int = 1) -> Tally:
    """Hand over a row, or each `every`-th input of it."""
    tally, cases = Tally(), islice(ROWS[name][1](), None, None, every)
    while some := list(islice(cases, AT_A_TIME)):
        tally.add(in_a_process(some))
    return tally


def in_a_process(cases: Sequence[Case]) -> Tally:
    """Hand over inputs in a process of their own."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(cases, theirs))
    process.start()
    theirs.close()
    try:
        found = mine.recv()
    except EOFError:
        found = Tally(len(cases), flaws=[f"the process died in {cases[0].name} to {cases[-1].name}"])
    process.join()
    assert isinstance(found, Tally)
    return found


def _send(cases: Sequence[Case], pipe: multiprocessing.connection.Connection) -> None:
    pipe.send(hand_over(cases))
    pipe.close()


def hand_over(cases: Sequence[Case]) -> Tally:
    """Hand over inputs in this process, each in a folder of its own."""
    tally, before = Tally(), _peak_bytes()
    with tempfile.TemporaryDirectory(prefix="aiperf-corpus-") as name:
        place = Path(name)
        (place / "tmp").mkdir()
        tempfile.tempdir = os.environ["TMPDIR"] = str(place / "tmp")
        signal.signal(signal.SIGPROF, _stop)
        for case in cases:
            tally.inputs += 1
            flaw, refused = _flaw(case, place)
            tally.refused += refused
            tally.flaws += [f"{case.name}: {flaw}"] if flaw else []
        os.chdir("/")
    if (grown := _peak_bytes() - before) > MOST_GROWTH_BYTES:
        tally.flaws.append(f"{cases[0].name} to {cases[-1].name}: the memory grew by {grown >> 20} MiB")
    return tally


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _stop(number: int, frame: FrameType | None) -> None:
    raise HangError


def _flaw(case: Case, place: Path) -> tuple[str, bool]:
    """What is wrong with the answer to an input, and whether it was refused."""
    inside = place / "inside"
    inside.mkdir()
    os.chdir(inside)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        message = case.action(inside)
    except HangError:
        return f"more than {MOST_SECONDS} s", False
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:300]}", False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.chdir(place)
        shutil.rmtree(inside)
    if len(message.encode(errors="replace")) > MOST_MESSAGE:
        return f"a message of {len(message):,} characters: {message[:100]!r}", True
    if "Traceback" in message:
        return f"a traceback: {message[-300:]}", True
    return _left(place), bool(message)


def _left(place: Path) -> str:
    """Files that an input has left outside of its folder; they are removed."""
    found = [*place.iterdir(), *(place / "tmp").iterdir()]
    left = [path for path in found if path != place / "tmp"]
    for path in left:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return f"left outside of its folder: {[path.name for path in left]}" if left else ""
