"""Short runs of two replicas with the shim, and what became of their epochs."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from aiperf.errors import EXIT_DONE, EXIT_FAILED
from aiperf.records.bodies import EpochCompleted, EpochWitnessed, ReplicaLost, RunEnded
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.paths import open_run
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.verify import verify
from tests.support.folders import until_the_end
from tests.support.hand_made import SIMULATED
from tests.support.runs import AT_RANDOM

SOURCE = Path(__file__).parent / "shim.c"

KINDS = ("open", "write", "fsync", "rename", "link", "mkdir", "unlink", "ftruncate")

WITHOUT_REPORT = """
import sys
from dataclasses import replace
from aiperf import __main__ as program
from aiperf.cli.command import load_command
program.load_command = lambda verb: replace(load_command(verb), follow_up=lambda arguments: [])
sys.exit(program.main())
"""

# A busy machine takes its time to end, which is not the subject.
LONG_GRACE = ("--set", "run.stop_grace=120s")

SETTINGS = ("--set", "simulated.epoch_seconds=0.2", "--set", "telemetry.interval=1s", *LONG_GRACE, *AT_RANDOM)


@cache
def shim() -> Path:
    """The compiled library. Raises CalledProcessError if there is no compiler."""
    library = until_the_end("shim") / "shim.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return library


@dataclass(frozen=True)
class Fault:
    """Calls that fail: `count` from the `first` on, `every` such, or all `while_` a file is.

    `kind` is one of `KINDS` or `any` of them; where a process only looks it is `stat`, `list`, or
    `look` for both.
    """

    kind: str = "any"
    first: int = 0
    count: int = 1
    every: int = 0
    code: int = errno.EIO
    short: bool = False
    delay_ms: int = 0
    part: str = ""
    while_: Path | None = None

    def __str__(self) -> str:
        what = "short" if self.short else errno.errorcode[self.code]
        which = f"every {self.every} from {self.first}" if self.every else f"{self.first}+{self.count}"
        return f"{self.kind} {which} {what}"


@dataclass(frozen=True)
class Call:
    """A call that the shim has logged; `failed` if it got a fault."""

    kind: str
    path: str
    failed: bool

    @classmethod
    def of(cls, line: str) -> Call:
        _, kind, rest = line.split(" ", 2)
        path, fault = rest.rsplit(" ", 1)
        return cls(kind, path, fault != "0")


@dataclass
class Shimmed:
    """A run below a folder with the shim in all of its processes."""

    folder: Path
    fault: Fault = Fault()
    words: tuple[str, ...] = ()
    replicas: int = 2
    duration: str = "4s"
    reports: bool = False
    """Write the report, too: most of the work of a short run."""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def output(self) -> Path:
        return self.folder / "run"

    @property
    def calls(self) -> tuple[int, int]:
        """Matching calls so far, and those that got a fault."""
        matching, faults = struct.unpack("2q", (self.folder / "calls").read_bytes())
        return int(matching), int(faults)

    @property
    def log(self) -> list[Call]:
        """Matching calls in order, for all processes."""
        return [Call.of(line) for line in (self.folder / "calls.log").read_text().splitlines()]

    def environment(self) -> dict[str, str]:
        """Variables for the shim. Files to count and to log are made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "calls").write_bytes(bytes(16))
        (self.folder / "calls.log").touch()
        fault = self.fault
        own = {
            "LD_PRELOAD": str(shim()),
            "SHIM_CALLS": str(self.folder / "calls"),
            "SHIM_BELOW": str(self.output),
            "SHIM_LOG": str(self.folder / "calls.log"),
            "SHIM_KIND": fault.kind,
            "SHIM_FIRST": str(fault.first),
            "SHIM_COUNT": str(fault.count),
            "SHIM_ERRNO": str(fault.code),
            "SHIM_DELAY_MS": str(fault.delay_ms),
            "SHIM_EVERY": str(fault.every),
        }
        own |= {"SHIM_SHORT": "1"} if fault.short else {}
        own |= {"SHIM_PART": fault.part} if fault.part else {}
        own |= {"SHIM_WHILE": str(fault.while_)} if fault.while_ else {}
        return {**os.environ, **own}

    def start(self, *verb: str) -> subprocess.Popen[str]:
        """Begin the run, or another verb on it."""
        begin = (
            "run",
            *SIMULATED,
            "--replicas",
            str(self.replicas),
            "--duration",
            self.duration,
            "--output",
            str(self.output),
            "--no-page",
            *SETTINGS,
            *self.words,
        )
        program = ("-m", "aiperf") if self.reports else ("-c", WITHOUT_REPORT)
        command = [sys.executable, "-P", *program, *(verb or begin)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=self.environment())
        return self.process

    def finish(self) -> Outcome:
        """Wait for the end; what became of the run."""
        assert self.process is not None
        stdout, stderr = self.process.communicate()
        return Outcome.of(self.output, self.process.returncode, stdout, stderr)

    def interrupt(self) -> Outcome:
        """Interrupt a run that has shown enough; what became of it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return replace(self.finish(), interrupted=True)


@contextlib.contextmanager
def killed_at_the_end(*runs: Shimmed) -> Iterator[None]:
    """Leave no run behind when a test fails before their ends."""
    try:
        yield
    finally:
        for run in runs:
            if run.process is not None and run.process.poll() is None:
                run.process.kill()


@dataclass(frozen=True)
class Outcome:
    """The end of a run and its books."""

    code: int
    stdout: str
    stderr: str
    status: str
    broken: tuple[str, ...]
    """Rules of integrity that the run does not meet."""
    ended: str
    epochs: int
    lost: tuple[tuple[int, int], ...]
    """Epochs (trial, number) that the primary knows of and no record has."""
    doubled: tuple[tuple[int, int], ...]
    replicas_lost: tuple[str, ...]
    problems: tuple[str, ...]
    interrupted: bool = False
    """By the test, which had seen enough."""

    @classmethod
    def of(cls, output: Path, code: int, stdout: str, stderr: str) -> Outcome:
        """Read the records."""
        bodies = [record.body for record in HistoryReader(open_run(output)).read_new().records]
        recorded = Counter((body.trial, body.epoch) for body in bodies if isinstance(body, EpochCompleted))
        known = {(body.trial, body.epoch) for body in bodies if isinstance(body, EpochWitnessed)}
        with contextlib.suppress(OSError):
            found = re.findall(r"trial (\d+) completed epoch (\d+)", (output / "logs/primary.log").read_text())
            known |= {(int(trial), int(epoch)) for trial, epoch in found}
        ends = [body.reason for body in bodies if isinstance(body, RunEnded)]
        report = build_report(read_run(open_run(output)))
        return cls(
            code,
            stdout,
            stderr,
            str(report.status),
            tuple(rule.rule for rule in report.rules if rule.group == "integrity" and not rule.passed),
            ends[-1] if ends else "",
            len(recorded),
            tuple(sorted(known - set(recorded))),
            tuple(key for key, times in recorded.items() if times > 1),
            tuple(body.reason for body in bodies if isinstance(body, ReplicaLost)),
            tuple(map(str, verify(open_run(output)))),
        )

    @property
    def flaws(self) -> list[str]:
        """What is not as in a run without faults."""
        due = self.interrupted
        found = []
        if self.code != (EXIT_FAILED if due else EXIT_DONE):
            found += [f"exit code {self.code}: {self.stderr[-500:]}"]
        if self.status not in (("FAILED",) if due else ("UNOFFICIAL", "SIMULATED")):
            found += [f"status {self.status}"]
        found += [f"rules not met: {self.broken}"] if self.broken != (("completion",) if due else ()) else []
        found += [f"ended {self.ended!r}"] if self.ended != ("interrupted" if due else "deadline") else []
        found += [f"lost {self.lost}"] if self.lost else []
        found += [f"doubled {self.doubled}"] if self.doubled else []
        found += [f"no epoch: {self.stderr[-500:]}"] if not self.epochs else []
        found += ["a traceback is printed"] if "Traceback" in self.stderr else []
        return [*found, *(f"replica lost: {reason}" for reason in self.replicas_lost), *self.problems[:3]]
