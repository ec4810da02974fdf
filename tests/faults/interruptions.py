"""Ctrl-C at drawn moments of every verb: `python -m tests.faults.interruptions --moments 50`.

No verb may leave its terminal silent for more than 2 s, nor show a traceback, whether it is
interrupted while it starts, works or ends, nor leave processes or temporary files behind. The keys
of a terminal reach all processes of a command, so the signal goes to its whole group. Tracebacks of
Python's own start, before it runs the command, do not count.
"""

import argparse
import contextlib
import math
import os
import pty
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

import aiperf
from aiperf.cli.lines import say
from aiperf.source_code import PACKAGES
from tests.support.folders import ROOT
from tests.support.hand_made import HandMadeRun
from tests.support.processes import ask, command, lives
from tests.support.runs import begin, wait_for_epochs

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
    "accept": ("RUN", "--baseline", "RUN"),
    "trend": ("RUN", "RUN"),
    "store": ("add", "RUN", "--store", "OUT"),
    "list": ("build", "ARCHIVES", "--output", "OUT"),
    "export": ("RUN", "--file", "OUT"),
    "audit": ("RUN", "--nonce", "a word"),
    "ops": ("--architecture", "resnet50"),
    "config": ("show",),
    "completion": ("bash",),
    "search": (),
    "hpo": (),
    "nodes": ("probe", "127.0.0.1"),
    "slurm": ("script", *SIMULATED, "--file", "JOB"),
    "rehearse": (*REHEARSED, "--output", "OUT"),
    "predict": REHEARSED,
    "dataset": ("synthesize", "OUT", "--train", "256", "--validation", "32", "--classes", "4"),
    "doctor": (*SIMULATED, "--no-probe"),
    "screen": (*SIMULATED, "--quick"),
    "micro": ("--quick", "--operators", "fc"),
    "profile": ("--batch-size", "2", "--steps", "1"),
    "run": (*SIMULATED, "--duration", "4s", "--no-page"),
    "resume": ("CUT",),
    "stop": ("LIVE",),
    "scale": (*SIMULATED, "--duration", "4s", "--counts", "1"),
    "dashboard": ("RUN",),
}
"""Words after each verb.

RUN is a run directory, CUT a copy of one whose primary was killed, LIVE one that runs, ARCHIVES a
folder with an archive, OUT and JOB paths that are not there.
"""

ENDLESS = {"dashboard": 6.0}
"""Verbs that wait until they are interrupted, with the seconds in which they are."""


SILENT_S = 2.0
"""Seconds after which a user of a terminal wonders whether a verb lives."""

OWN_FRAMES = tuple(f'File "{Path(aiperf.__file__).parents[1] / package}/' for package in PACKAGES)
"""Beginnings of lines of a traceback in AIPerf's own packages."""


@dataclass(frozen=True, slots=True, order=True)
class Silence:
    """A time in which the terminal showed nothing new."""

    took_s: float = 0.0
    at_s: float = 0.0
    """Its begin, after that of the command."""
    cpu_s: float = 0.0
    """CPU seconds that the command itself got meanwhile: few on a starved machine."""

    def __str__(self) -> str:
        return f"silent for {self.took_s:.1f} s from {self.at_s:.1f} s on, with {self.cpu_s:.2f} s of CPU"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    said: str
    took_s: float
    silence: Silence
    """The longest one before it was interrupted."""
    left: tuple[str, ...]
    """Processes and temporary files that outlived it."""


def run(words: Sequence[str], folder: Path, after_s: float | None = None) -> Ended:
    """Run a command to its end, or to Ctrl-C after some seconds."""
    out = Path(tempfile.mkdtemp(dir=folder))
    temporary = out / "temporary"
    temporary.mkdir()
    if "CUT" in words:
        shutil.copytree(folder / "cut", out / "cut")
    places = {
        "RUN": folder / "run",
        "ARCHIVES": folder / "archives",
        "CUT": out / "cut",
        "LIVE": out / "live",
        "OUT": out / "out",
        "JOB": out / "job.sh",
    }
    program = [f"{Path(sys.executable).parent}/aiperf", *(str(places.get(word, word)) for word in words)]
    with living(out / "live") if "LIVE" in words else contextlib.nullcontext():
        began_s = time.perf_counter()
        code, said, silence = _started(program, out, after_s)
        took_s = time.perf_counter() - began_s
    left = (*_processes_left(str(temporary)), *(path.name for path in temporary.iterdir()))
    return Ended(code, said, took_s, silence, left)


@contextlib.contextmanager
def living(output: Path) -> Iterator[None]:
    """A run that is in progress during the block, unless the block ends it."""
    with begin(output, "--duration", "1h") as primary:
        wait_for_epochs(output)
        try:
            yield
        finally:
            primary.send_signal(signal.SIGINT)
            primary.communicate(timeout=120)


def _processes_left(temporary: str) -> list[str]:
    """Processes of a command, known by their folder of temporary files, that live on for long."""
    mine = [each for each in psutil.process_iter() if ask(each.environ, dict[str, str]()).get("TMPDIR") == temporary]
    _, alive = psutil.wait_procs(mine, timeout=20)
    return [command(each) for each in alive if lives(each)]


def _started(program: Sequence[str], out: Path, after_s: float | None) -> tuple[int, str, Silence]:
    """Exit code, output and longest silence of a program that is interrupted after some seconds."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        program,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        cwd=out,
        env={**os.environ, "TMPDIR": f"{out}/temporary", "TERM": "xterm"},
        preexec_fn=_heed_interrupts,  # noqa: PLW1509  there are no threads
    ) as process:
        os.close(its)
        said, longest, began_s = b"", Silence(), time.perf_counter()
        heard_s, interrupt_s, worked_s, heard_cpu_s = began_s, began_s + (after_s or 600), 0.0, 0.0
        while (new := _read(ours)) or process.poll() is None:
            now_s = time.perf_counter()
            worked_s = max(worked_s, _cpu_s(process.pid))
            if interrupt_s < math.inf:
                longest = max(longest, Silence(now_s - heard_s, heard_s - began_s, worked_s - heard_cpu_s))
            said += new
            if new:
                heard_s, heard_cpu_s = now_s, worked_s
            if now_s >= interrupt_s:
                os.killpg(process.pid, signal.SIGINT)
                interrupt_s = math.inf
    os.close(ours)
    return process.returncode, said.decode(errors="replace"), longest


def _cpu_s(pid: int) -> float:
    """CPU seconds that a process had; 0 if it is gone."""
    times = ask(lambda: psutil.Process(pid).cpu_times(), None)
    return times.user + times.system if times else 0.0


def _read(terminal: int) -> bytes:
    """What is shown next; empty if nothing is for a moment, or nothing can be any more."""
    if not select.select([terminal], [], [], 0.02)[0]:
        return b""
    try:
        return os.read(terminal, 65536)
    except OSError:  # the last process has closed it
        time.sleep(0.02)
        return b""


def _heed_interrupts() -> None:
    """Undo that a script in the background ignores Ctrl-C: a command of a terminal does not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted(verb: str, folder: Path, moments: int) -> Iterator[str]:
    """Interrupt a verb at some moments; for each what was wrong, if any. Says how silent it was."""
    words = (verb, *COMMANDS[verb])
    whole = run(words, folder, ENDLESS.get(verb))
    if whole.code not in (0, 1, 3):
        yield f"{verb} ends with {whole.code}: {whole.said[-300:]}"
        return
    longest = whole.silence
    rng = random.Random(f"moments of {verb}")
    for _ in range(moments):
        after_s = rng.uniform(0.05, ENDLESS.get(verb, whole.took_s))
        ended = run(words, folder, after_s)
        longest = max(longest, ended.silence)
        wrong = ended.left or any(frame in ended.said for frame in OWN_FRAMES)
        yield (
            f"{verb} after {after_s:.2f} of {whole.took_s:.2f} s: left {ended.left}; {ended.said[-1500:]}"
            if wrong
            else ""
        )
    say(f"{verb}: {whole.took_s:.1f} s; {longest}; load {os.getloadavg()[0]:.0f}")
    if longest.took_s > SILENT_S and verb not in ENDLESS:
        yield f"{verb} is silent for more than {SILENT_S:.0f} s"


def make_runs(folder: Path, verbs: Sequence[str]) -> None:
    """Small runs for the verbs that read or resume one."""
    made = HandMadeRun(folder / "run").at(0).release(100).at(1).start_trial(1)
    made.at(20).epoch(1, 1).at(40).epoch(1, 2).end(100)
    (folder / "archives").mkdir()
    (folder / "archives" / "signers").touch()
    run(("export", "RUN", "--file", str(folder / "archives" / "run.tar.gz")), folder)
    if any("CUT" in COMMANDS[verb] for verb in verbs):
        with begin(folder / "cut", "--duration", "10s") as primary:
            wait_for_epochs(folder / "cut")
            primary.kill()


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
            make_runs(Path(folder), arguments.verbs)
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
