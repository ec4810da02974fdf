"""Ctrl-C at drawn moments of every verb: `python -m tests.faults.interruptions --moments 50`.

No verb may show a traceback, whether it is interrupted while it starts, works or ends. The keys of
a terminal reach all processes of a command, so the signal goes to its whole group. Tracebacks of
Python's own start, before it runs the command, do not count.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiperf
from aiperf.cli.lines import say
from aiperf.source_code import PACKAGES
from tests.support.folders import ROOT
from tests.support.hand_made import HandMadeRun

MACHINE = str(ROOT / "examples" / "machines" / "h100-8x8.toml")
REHEARSED = ("--machine", MACHINE, "--replicas", "2", "--duration", "20m", "--search", "modelled")
SIMULATED = ("--preset", "quick", "--set", "training.trainer=simulated", "--output", "OUT")

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "status": ("RUN",),
    "report": ("RUN", "--output", "OUT"),
    "verify": ("RUN",),
    "check": ("RUN",),
    "rank": ("RUN",),
    "compare": ("RUN", "RUN"),
    "trend": ("RUN",),
    "scale": ("--from", "RUN"),
    "export": ("RUN", "--file", "OUT"),
    "audit": ("RUN", "--nonce", "a word"),
    "ops": ("--architecture", "resnet50"),
    "config": ("show",),
    "search": (),
    "hpo": (),
    "rehearse": (*REHEARSED, "--output", "OUT"),
    "predict": REHEARSED,
    "dataset": ("synthesize", "OUT", "--train", "256", "--validation", "32", "--classes", "4"),
    "doctor": (*SIMULATED, "--no-probe"),
    "screen": (*SIMULATED, "--quick"),
    "micro": ("--quick",),
    "profile": ("--batch-size", "2", "--steps", "1"),
    "run": (*SIMULATED, "--duration", "4s", "--no-page"),
}
"""Words after each verb; RUN is a run directory, OUT a path that is not there."""


OWN_FRAMES = tuple(f'File "{Path(aiperf.__file__).parents[1] / package}/' for package in PACKAGES)
"""Beginnings of lines of a traceback in AIPerf's own packages."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    said: str
    took_s: float


def run(words: Sequence[str], folder: Path, after_s: float | None = None) -> Ended:
    """Run a command to its end, or to Ctrl-C after some seconds."""
    out = tempfile.mkdtemp(dir=folder)
    places = {"RUN": str(folder / "run"), "OUT": f"{out}/out"}
    command = [f"{Path(sys.executable).parent}/aiperf", *(places.get(word, word) for word in words)]
    began_s = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=out,
        preexec_fn=_heed_interrupts,  # noqa: PLW1509  there are no threads
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=after_s or 600)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            said, _ = process.communicate(timeout=120)
    return Ended(process.returncode, said, time.perf_counter() - began_s)


def _heed_interrupts() -> None:
    """Undo that a script in the background ignores Ctrl-C: a command of a terminal does not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted(verb: str, folder: Path, moments: int) -> Iterator[str]:
    """Interrupt a verb at some moments; for each what was wrong, or nothing."""
    words = (verb, *COMMANDS[verb])
    whole = run(words, folder)
    if whole.code not in (0, 1, 3):
        yield f"{verb} ends with {whole.code}: {whole.said[-300:]}"
        return
    rng = random.Random(f"moments of {verb}")
    for _ in range(moments):
        after_s = rng.uniform(0.05, whole.took_s)
        ended = run(words, folder, after_s)
        wrong = any(frame in ended.said for frame in OWN_FRAMES)
        yield f"{verb} after {after_s:.2f} of {whole.took_s:.2f} s: {ended.said[-1500:]}" if wrong else ""


def made_run(folder: Path) -> None:
    """A small run for the verbs that read one."""
    made = HandMadeRun(folder / "run").at(0).release(100).at(1).start_trial(1)
    made.at(20).epoch(1, 1).at(40).epoch(1, 2).end(100)


def main() -> int:
    """Interrupt verbs, and print what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--verbs", nargs="+", choices=tuple(COMMANDS), default=[*COMMANDS])
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # with what was found so far
    moments = bad = 0
    try:
        with tempfile.TemporaryDirectory(prefix="aiperf-interrupted-") as folder:
            made_run(Path(folder))
            for verb in arguments.verbs:
                for problem in interrupted(verb, Path(folder), arguments.moments):
                    moments += 1
                    bad += bool(problem)
                    say(*filter(None, [problem]))
                say(f"{verb}: done")
    finally:
        say(f"verbs={','.join(arguments.verbs)} moments={moments} bad={bad}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
