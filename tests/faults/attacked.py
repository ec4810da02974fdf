"""A run under attack: its processes by kind, its commands, and what they ended with."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.errors import EXIT_DONE, EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_USAGE
from tests.faults.grounds.contract import Place
from tests.faults.watched import Watched
from tests.support.processes import ask, family

SILENCE_S = 12.0
"""`run.replica_silence` and `replica.trial_silence`: a busy machine is silent for less."""

PATIENCE_S = 400.0
"""Nothing that a fault leads to takes this long, on however busy a machine."""

LOOK_S = 0.1

SETTINGS = (
    "replica.restarts=1000",
    "replica.retry_delay=0.1",
    "replica.max_failed_trials=1000",
    "training.checkpoint_interval=0.1",
    "training.max_epochs=8",
    "simulated.epoch_seconds=0.3",
    "search.max_growth=1.2",
    "telemetry.interval=1s",
    "run.min_free_disk_gib=0",
)

TOO_LATE = ("reached its deadline", "the deadline passed", "completed its work")
"""Answers of `aiperf resume` to a run without time or work left."""

PATIENT = (f"run.replica_silence={SILENCE_S}s", f"replica.trial_silence={SILENCE_S}s")
"""Not for real training, whose first step takes longer."""


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

    def excuse_report(self) -> None:
        """A run that ends while storage refuses prints its result, and has no report."""
        shown = self.shown if self.process.poll() is not None else ""
        if "/report cannot be written" in shown and ("AIPerf: score=" in shown or "AIPerf-science: " in shown):
            self.codes |= {EXIT_ENVIRONMENT}

    def flaws(self) -> list[str]:
        """What is wrong with its end, for which it waits; reported once."""
        if self.judged:
            return []
        self.judged = True
        self.close_terminal()
        code, words = self.process.wait(), self.process.args
        assert isinstance(words, list)
        late = code == EXIT_USAGE and "resume" in words and any(text in self.shown for text in TOO_LATE)
        found = []
        if code not in self.codes and not late:
            found.append(f"exit code {code} instead of {sorted(self.codes)}: {self.shown[-600:]}")
        if "Traceback" in self.shown:
            found.append(f"a traceback is printed: {self.shown[-2000:]}")
        return found


def refused_of(pair: list[Command], ended: Command) -> Command:
    """The one of two that was or will be refused: `ended` may have had the run to its end."""
    if ended.process.returncode != EXIT_DONE:
        return ended
    return next(command for command in pair if command is not ended)


class Attacked(Watched):
    """One run below a folder."""

    def __init__(self, folder: Path, place: Place, trainer: str = "simulated", replicas: int = 3) -> None:
        super().__init__(folder / "run", place.marks)
        self.folder = folder
        self.environment = dict(place.environment)
        self.prefix: list[str] = ["setsid", "--ctty"]
        self.replicas = replicas
        self.flaws: list[str] = []
        """Exit codes and ends that are not as they must be."""
        self.double_claims = 0
        self.place = place
        self._trainer = trainer
        self._commands: list[Command] = []

    def preload(self, library: str) -> None:
        """Load a library into every process of the run."""
        self.environment["LD_PRELOAD"] = " ".join(filter(None, (self.environment.get("LD_PRELOAD"), library)))

    # Commands

    def begin(self, duration_s: int, *further: str, faults: int = 1) -> None:
        """Start the run, with further settings, and work for this many faults."""
        settings = [f"training.trainer={self._trainer}", *SETTINGS]
        settings += PATIENT if self._trainer == "simulated" else ()
        words = [word for setting in (*settings, *further) for word in ("--set", setting)]
        words += ["--replicas", str(self.replicas), "--duration", f"{duration_s}s", *self.place.words]
        self._start("run", *self.load.words(self.folder, faults), *words, "--output", str(self.output))

    def _start(self, *words: str) -> Command:
        shown = self.folder / f"shown-{len(self._commands)}"
        ours, theirs = pty.openpty()
        with shown.open("wb") as log:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "aiperf", *words, "--no-page"],
                stdin=theirs,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )
        os.close(theirs)
        self._commands.append(Command(process, shown, ours))
        return self._commands[-1]

    @property
    def current(self) -> Command:
        """The command that has the run, or had it last."""
        return self._commands[-1]

    @property
    def command_pids(self) -> list[int]:
        """Of all commands; the last one is that of `current`."""
        return [command.process.pid for command in self._commands]

    @property
    def alive(self) -> bool:
        """True if the command that has the run has not ended."""
        return self.current.process.poll() is None

    @property
    def over(self) -> bool:
        """True if the run has come to its own end, with or without a living primary."""
        return not self.alive and (self.ended(self.load.ends) or self.current.process.poll() == EXIT_USAGE)

    def expect_death(self) -> None:
        """The next end of the command is that of a killed one."""
        self.current.codes |= self.place.killed_codes

    def go_on(self) -> None:
        """Resume the run if its primary has died."""
        if self.alive:
            return
        self._judge(self.current)
        if not self.over and (self.output / "run.json").exists():
            self._start("resume", str(self.output))

    def _judge(self, command: Command) -> None:
        self.flaws += command.flaws()

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
            loser = refused_of(pair, ended[0])
            self._commands.remove(loser)
            self._commands.insert(-1, loser)
            self._count_refusal(loser)

    def _count_refusal(self, loser: Command) -> None:
        loser.codes = {EXIT_ENVIRONMENT}
        if loser.process.wait() == EXIT_DONE:
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
        """Wait until something is true; False if the run is over before, or in vain."""
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
        """Wait until every replica has completed a further epoch; False as of `wait`."""
        before = [self.epochs_of(f"replica-{replica:04d}-*.jsonl") for replica in range(self.replicas)]

        def working() -> bool:
            self.go_on()
            return all(self.epochs_of(f"replica-{number:04d}-*.jsonl") > count for number, count in enumerate(before))

        return self.wait(working)

    def stop(self) -> None:
        """Interrupt the run, as Ctrl-C does, and wait until it has ended."""
        self.current.codes = {EXIT_FAILED}
        self.current.process.send_signal(signal.SIGINT)
        self.wait(lambda: not self.alive, while_going=False)
        self._judge(self.current)

    def finish(self) -> None:
        """Resume as often as needed until the run has ended by itself."""
        end = time.monotonic() + 4 * PATIENCE_S
        while not self.over and time.monotonic() < end:
            time.sleep(LOOK_S)
            self.go_on()
        if not self.over:
            self.flaws.append("the run does not end")
            self.current.codes |= {-9}
            self.kill()
        self._judge(self.current)
