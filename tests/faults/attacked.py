"""A run under attack: its processes by kind, its commands, and what they ended with."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from aiperf.errors import EXIT_DONE, EXIT_ENVIRONMENT, EXIT_USAGE
from testing.processes import ask, family, lives, processes_with, words_of
from tests.faults.grounds.contract import Place

SILENCE_S = 6.0
"""`run.replica_silence`; a rank is silent for half of it."""

PATIENCE_S = 240.0
"""Nothing that a fault leads to takes this long, on however busy a machine."""

LOOK_S = 0.1

SETTINGS = (
    "replica.restarts=1000", "replica.retry_delay=0.1", "replica.max_failed_trials=1000",
    "training.checkpoint_interval=0.1", "training.max_epochs=8", "simulated.epoch_seconds=0.3",
    "search.max_growth=1.2", "telemetry.interval=1s", "run.min_free_disk_gib=0",
)  # fmt: skip

PATIENT = (f"run.replica_silence={SILENCE_S}s", f"replica.trial_silence={SILENCE_S / 2}s")
"""Not for real training, whose first step takes longer."""

KINDS = ("command", "primary", "manager", "agent", "rank", "other")


@dataclass
class Command:
    """`aiperf run` or `aiperf resume`, on a terminal of its own if it gets one."""

    process: subprocess.Popen[bytes]
    output: Path
    terminal: int | None
    codes: set[int] = field(default_factory=lambda: {EXIT_DONE})
    """Exit codes that are right."""
    judged: bool = False

    @property
    def shown(self) -> str:
        return self.output.read_text(errors="replace")

    def close_terminal(self) -> bool:
        """False if there is none any more."""
        if self.terminal is None:
            return False
        os.close(self.terminal)
        self.terminal = None
        return True


class Attacked:
    """One run below a folder."""

    def __init__(self, folder: Path, place: Place, trainer: str = "simulated", replicas: int = 3) -> None:
        self.folder = folder
        self.output = folder / "run"
        self.environment = dict(place.environment)
        self.prefix: list[str] = ["setsid", "--ctty"]
        self.replicas = replicas
        self.flaws: list[str] = []
        """Exit codes and ends that are not as they must be."""
        self.double_claims = 0
        self._place = place
        self._trainer = trainer
        self._commands: list[Command] = []

    def preload(self, library: str) -> None:
        """Load a library into every process of the run."""
        self.environment["LD_PRELOAD"] = " ".join(filter(None, (self.environment.get("LD_PRELOAD"), library)))

    # Commands

    def begin(self, duration_s: int) -> None:
        """Start the run."""
        settings = [f"training.trainer={self._trainer}", *SETTINGS]
        settings += PATIENT if self._trainer == "simulated" else ()
        words = [word for setting in settings for word in ("--set", setting)]
        self._start("run", "--dataset", "digits", "--replicas", str(self.replicas), "--duration", f"{duration_s}s",
                    *words, *self._place.words, "--output", str(self.output))  # fmt: skip

    def _start(self, *words: str) -> Command:
        shown = self.folder / f"shown-{len(self._commands)}"
        ours, theirs = pty.openpty()
        with shown.open("wb") as log:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "aiperf", *words],
                stdin=theirs, stdout=log, stderr=log, env={**os.environ, **self.environment},
            )  # fmt: skip
        os.close(theirs)
        self._commands.append(Command(process, shown, ours))
        return self._commands[-1]

    @property
    def _current(self) -> Command:
        return self._commands[-1]

    @property
    def command_pid(self) -> int:
        """Of the command that has the run, or had it last."""
        return self._current.process.pid

    @property
    def alive(self) -> bool:
        """True if the command that has the run has not ended."""
        return self._current.process.poll() is None

    @property
    def over(self) -> bool:
        """True if the run has ended at its deadline, or its last primary died as the deadline passed."""
        return not self.alive and (self._deadline_recorded() or self._current.process.poll() == EXIT_USAGE)

    def expect_death(self) -> None:
        """The next end of the command is that of a killed one."""
        self._current.codes |= self._place.killed_codes

    def close_terminal(self) -> bool:
        """Close the terminal of the command; False if that has happened already."""
        return self._current.close_terminal()

    def shown(self) -> str:
        """Everything that the command has printed."""
        return self._current.shown

    def go_on(self) -> None:
        """Resume the run if its primary has died."""
        if self.alive:
            return
        self._judge(self._current)
        if not self.over and (self.output / "run.json").exists():
            self._start("resume", str(self.output))

    def _judge(self, command: Command) -> None:
        """Compare the exit code of a command that has ended with what was done to it."""
        if command.judged:
            return
        command.judged = True
        command.close_terminal()
        code, verb = command.process.wait(), command.process.args
        assert isinstance(verb, list)
        late = code == EXIT_USAGE and "resume" in verb and "reached its deadline" in command.shown
        if code not in command.codes and not late:
            self.flaws.append(f"exit code {code} instead of {sorted(command.codes)}: {command.shown[-600:]}")
        if "Traceback" in command.shown:
            self.flaws.append(f"a traceback is printed: {command.shown[-2000:]}")

    def refuse_second(self) -> None:
        """Resume the run beside its living primary, which is refused."""
        first, second = self._commands[-1], self._start("resume", str(self.output))
        second.codes = {EXIT_ENVIRONMENT}
        self._commands.pop()
        self._commands.insert(-1, second)  # numbers of the outputs go on
        if not self.wait(lambda: second.process.poll() is not None, while_going=False):
            self._double(second)
        elif second.process.returncode == EXIT_ENVIRONMENT or first.process.poll() is None:
            self._count_refusal(second)
        else:
            second.judged = True  # the run has ended meanwhile, by itself
            second.close_terminal()

    def resume_twice(self) -> None:
        """Resume a dead run twice at once: one gets it."""
        pair = [self._start("resume", str(self.output)) for _ in range(2)]
        self.wait(lambda: any(command.process.poll() is not None for command in pair), while_going=False)
        ended = [command for command in pair if command.process.poll() is not None]
        if not ended:
            self._double(pair[1])
        elif len(ended) == 1:
            (loser,) = ended
            self._commands.remove(loser)
            self._commands.insert(-1, loser)
            self._count_refusal(loser)

    def _count_refusal(self, loser: Command) -> None:
        loser.codes = {EXIT_ENVIRONMENT}
        if loser.process.returncode == EXIT_DONE:
            self.double_claims += 1
        self._judge(loser)

    def _double(self, second: Command) -> None:
        """Two have the run: end one of them."""
        self.double_claims += 1
        second.codes = {-9, EXIT_ENVIRONMENT}
        for process in family(second.process.pid):
            ask(process.kill, None)
        self._judge(second)

    # What happens

    def wait(self, condition: Callable[[], object], while_going: bool = True) -> bool:
        """Wait until something is true; False if the run is over before, or it takes far too long."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if while_going and self.over:
                return False
            if time.monotonic() > end:
                self.flaws.append("what had to follow did not happen")
                return False
            time.sleep(LOOK_S)
        return True

    def recovered(self) -> bool:
        """Wait until every replica has completed a further epoch; False if the run is over before."""
        before = [self._epochs_of(f"replica-{replica:04d}-*.jsonl") for replica in range(self.replicas)]

        def working() -> bool:
            self.go_on()
            return all(self._epochs_of(f"replica-{number:04d}-*.jsonl") > count for number, count in enumerate(before))

        return self.wait(working)

    def epochs(self) -> int:
        """Epochs that are recorded."""
        return self._epochs_of("replica-*.jsonl")

    def _epochs_of(self, pattern: str) -> int:
        return sum(text.count('"type":"epoch"') for text in self._texts(pattern))

    def _deadline_recorded(self) -> bool:
        return any('"reason":"deadline"' in text for text in self._texts("primary-*.jsonl"))

    def _texts(self, pattern: str) -> list[str]:
        texts = []
        for file in (self.output / "history").glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                texts.append(file.read_text(errors="replace"))
        return texts

    def finish(self) -> None:
        """Resume as often as needed until the run has ended at its deadline."""
        end = time.monotonic() + 4 * PATIENCE_S
        while not self.over and time.monotonic() < end:
            time.sleep(LOOK_S)
            self.go_on()
        if not self.over:
            self.flaws.append("the run does not end")
            for process in self.processes():
                ask(process.kill, None)
        self._judge(self._current)

    # Processes

    def processes(self) -> list[psutil.Process]:
        """All processes of the run, by command line or parent."""
        found = {}
        for head in processes_with(self.output):
            ranks = [member for member in family(head)[1:] if "replica" in " ".join(words_of(member)) and lives(member)]
            found.update({process.pid: process for process in (head, *ranks)})
        return list(found.values())

    def kinds(self) -> dict[str, list[psutil.Process]]:
        """The processes by what they do: one of KINDS."""
        found: dict[str, list[psutil.Process]] = {kind: [] for kind in KINDS}
        for process in self.processes():
            found[self._kind(words_of(process))].append(process)
        return found

    def _kind(self, words: list[str]) -> str:
        if "-m" not in words:
            return "manager" if "--trace-uncaught" in words else "other"
        module = words[words.index("-m") + 1]
        if module == "replica":
            return "agent"
        if module.startswith("replica.trainer"):
            return "rank"
        if module == "aiperf" and "python" in words[0]:
            return "command" if "nni" in self._place.words else "primary"
        return "primary" if module == "primary.nni" else "other"

    def left(self) -> list[str]:
        """Wait until nothing is left of the run; what stays nevertheless."""
        end = time.monotonic() + PATIENCE_S
        while (self.processes() or self._place.left()) and time.monotonic() < end:
            time.sleep(LOOK_S)
        names = [" ".join(words_of(process)) for process in self.processes()]
        return [*names, *self._place.left(), *map(str, self.output.rglob(".*.tmp"))]
