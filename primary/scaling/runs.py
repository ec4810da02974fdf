"""The runs of a series, one after another, and what each has more of; resumable."""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from aiperf.cli.lines import warn
from aiperf.cli.waiting import finish
from aiperf.config.settings import RunConfig
from aiperf.errors import EXIT_DONE, EXIT_USAGE, RunFailedError, UsageError
from aiperf.files import write_atomically
from aiperf.processes import python_module
from aiperf.records.reading import read_ledger
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.signals import heeded
from primary.resumption import DONE

Mode = Literal["weak", "strong"]
Kind = Literal["replicas", "ranks"]
Batch = Literal["global", "rank"]


@dataclass(frozen=True, slots=True)
class Growth:
    """The difference between the runs of a series.

    Weak: the work grows with the machine. Strong: the work stays. A replica with more ranks keeps
    its global batch (`global`), of which each rank gets its part, or the batch of a rank (`rank`).
    """

    mode: Mode = "weak"
    grows: Kind = "replicas"
    batch: Batch | None = None

    @classmethod
    def chosen(cls, mode: Mode, grows: Kind, batch: Batch | None, config: RunConfig) -> Growth:
        """The growth that options ask for. Raises UsageError if the configuration has none such."""
        if batch is not None and grows == "replicas":
            raise UsageError("--batch: replicas never share a batch; it applies to --grow ranks")
        if mode == "strong" and grows == "replicas" and config.run.suite == "automl":
            raise UsageError(
                "--mode strong: a run of AutoML has no fixed work, since every replica searches until the end; "
                "grow the ranks of its replicas (--grow ranks), or take --suite science"
            )
        batch = batch or ("global" if mode == "strong" else "rank")
        if grows == "ranks" and mode == "weak" and batch == "global":
            raise UsageError("--mode weak --batch global: the work of a step would stay; take --mode strong")
        if grows == "ranks" and batch == "global" and config.training.batch_size is None:
            raise UsageError("--batch global: state the batch of all ranks together: --set training.batch_size=N")
        return cls(mode, grows, batch if grows == "ranks" else None)

    @property
    def words(self) -> tuple[str, ...]:
        """The growth as options, without those that are usual: a note of the series has them."""
        if self == Growth():
            return ()
        batch = ("--batch", self.batch) if self.batch is not None else ()
        return ("--mode", self.mode, "--grow", self.grows, *batch)

    def member(self, count: int, config: RunConfig) -> Member:
        """The run of this size. Raises UsageError if a batch cannot be divided."""
        return Member(f"{self.grows}-{count:04d}", f"{count} {self.grows}", self._options(count, config))

    def _options(self, count: int, config: RunConfig) -> tuple[str, ...]:
        if self.grows == "replicas":
            models = self.mode == "weak" and config.run.suite == "science"
            grown = ("--instances", str(config.science.instances * count)) if models else ()
            return ("--replicas", str(count), *grown)
        ranks = ("--set", f"replica.ranks={count}")
        if self.batch == "rank":
            return ranks
        whole = config.training.batch_size or 0
        if whole % count:
            raise UsageError(f"--batch global: {whole} images cannot be divided among {count} ranks")
        return (*ranks, "--set", f"training.batch_size={whole // count}")


SERIES = "series.json"
SAME_COMMAND = "the same command resumes the series"


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a series: its folder, its size in words, and its options besides those of all."""

    folder: str
    named: str
    options: tuple[str, ...]


class Programs:
    """The programs of a series, one at a time.

    SIGTERM and warnings of the end are passed on to them.

    Ctrl-C reaches a program from the terminal; it is waited for, since it ends its run in order.
    """

    def __init__(self, output: TextIO | None, lock: int) -> None:
        self._output = output
        self._lock = lock
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = self._passed_on = False

    def run(self, words: Sequence[str]) -> int:
        """Run `aiperf` with these words to its end; its exit code.

        Raises RunFailedError if the series has to end.
        """
        if self._ending:
            raise RunFailedError(f"the series was interrupted; {SAME_COMMAND}")
        finish()  # the program has its own sign of life
        # Whatever becomes of this process, the series is in use while the program works.
        self._process = subprocess.Popen(python_module("aiperf", *words), stdout=self._output, pass_fds=[self._lock])
        self._pass_on()  # the signal may have come while the program started
        try:
            return self._process.wait()
        except KeyboardInterrupt:
            self._process.wait()
            raise

    def end(self) -> None:
        """End the program in order, and start no other."""
        self._ending = True
        self._pass_on()

    def _pass_on(self) -> None:
        if self._ending and self._process is not None and not self._passed_on:
            self._passed_on = True
            self._process.terminate()


def run_series(
    folder: Path,
    members: Sequence[Member],
    words: Sequence[str],
    output: TextIO | None = None,
    note: Sequence[str] = (),
) -> list[Path]:
    """The members as runs, in folders below `folder`, which are returned.

    `words` are options of `aiperf run` that all share; `note`, further options of the series. The
    runs print to `output`, by default to standard output.

    Finished runs are kept, interrupted ones resume. Raises UsageError if the folder holds a series
    of another configuration, and RunFailedError if a run ends without a result; the work of the
    series up to then is kept. Waits while another process works on the series, such as the last run
    of one that was killed.
    """
    _claim(folder, [*words, *note])
    with _locked(folder) as lock:
        programs = Programs(output, lock)
        with heeded(programs.end):
            for member in members:
                _carry_out(programs, folder / member.folder, member, words)
    return [folder / member.folder for member in members]


def _carry_out(programs: Programs, target: Path, member: Member, words: Sequence[str]) -> None:
    """Begin or resume a run, unless it is over."""
    command = _command(target, [*words, *member.options])
    if command is None:
        return
    code = programs.run(command)
    if code == EXIT_USAGE and command[0] == "resume":
        raise RunFailedError(
            f"the run with {member.named} cannot be resumed; move {target} away, and the same command starts it again"
        )
    if code != EXIT_DONE:
        raise RunFailedError(f"the run with {member.named} ended with exit code {code}; {SAME_COMMAND}")


def _claim(folder: Path, words: Sequence[str]) -> None:
    """Note the options of the series, or check that they are the same as before."""
    note = folder / SERIES
    try:
        noted = json.loads(note.read_bytes())["options"]
    except FileNotFoundError:
        write_atomically(note, json.dumps({"options": list(words)}, indent=2).encode() + b"\n")
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{note} is damaged: {error}") from None
    if noted != list(words):
        raise UsageError(
            f"{folder} holds a series with other options: {' '.join(map(str, noted))}; name a new --output"
        )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Lock the series for this process and the programs that it starts: a descriptor for them.

    A file system without locks gives none: then the claims of the runs alone keep processes apart.
    """
    with (folder / SERIES).open("r+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            warn(f"waiting for the process that works on the series {folder}")
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError:
            pass
        yield stream.fileno()


def _command(target: Path, words: Sequence[str]) -> list[str] | None:
    """Arguments of `aiperf` for one run; None if it is over."""
    if not RunPaths(target).run.exists():
        return ["run", *words, "--output", str(target)]
    return None if is_over(target) else ["resume", str(target)]


def is_over(target: Path) -> bool:
    """True if nothing is left to resume: the time of the run is over, or its work is done."""
    end = read_ledger(open_run(target)).run_ended
    return end is not None and end.body.reason in DONE
