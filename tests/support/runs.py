"""Runs in progress as tests watch them: their history, their reports, their processes."""

import json
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from aiperf.run_directory.paths import RunPaths, open_run
from tests.support.folders import GOLDEN
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.processes import ask, command, processes_with, words_of

AT_RANDOM = ("--set", "search.strategy=random")
"""For runs about something else: the surrogate's libraries take a second of CPU in every agent."""


class Watched(subprocess.Popen[str]):
    """A program that is killed when the test around it fails, instead of being waited for."""

    def __exit__(self, *problem: Any) -> None:
        if problem[0] is not None:
            self.kill()
        super().__exit__(*problem)


def begin(output: Path, *words: object) -> subprocess.Popen[str]:
    """Start a run with the simulated trainer next to the test."""
    program = [sys.executable, "-m", "aiperf", "run", *SIMULATED, "--output", str(output), "--no-page"]
    return Watched([*program, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def report(output: Path) -> dict[str, Any]:
    """report.json."""
    return dict(json.loads((output / "report" / "report.json").read_text()))


def history(output: Path) -> str:
    """The text of the whole history list, unfinished lines included."""
    return "".join(file.read_text() for file in (output / "history").glob("*.jsonl"))


def raw_records(output: Path) -> list[dict[str, Any]]:
    """All records, file by file, without the code that is tested."""
    lines = [line for file in sorted((output / "history").iterdir()) for line in file.read_text().splitlines()]
    return [{**json.loads(line)["data"], "time": json.loads(line)["time"]} for line in lines]


def wait_for(condition: Callable[[], object], timeout_s: float = 200) -> None:
    """Until something is true; the test fails when it does not become true in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail("the condition did not become true in time")
        time.sleep(0.05)


def count_epochs(output: Path, replica: int | None = None) -> int:
    """Epochs that are recorded, of all replicas or of one."""
    files = (output / "history").glob("*.jsonl" if replica is None else f"replica-{replica:04d}-*.jsonl")
    return sum(file.read_text().count('"type":"epoch"') for file in files)


def all_have_epochs(output: Path, replicas: int) -> bool:
    """True if each replica has recorded an epoch."""
    return all(count_epochs(output, replica) for replica in range(replicas))


def wait_for_epochs(output: Path, count: int = 1, timeout_s: float = 200) -> None:
    """Wait until this many epochs are recorded."""
    wait_for(lambda: count_epochs(output) >= count, timeout_s)


def wait_for_another_epoch(output: Path, replica: int | None = None) -> None:
    """Wait until one epoch more is recorded, of any replica or of one."""
    before = count_epochs(output, replica)
    wait_for(lambda: count_epochs(output, replica) > before)


def interrupt(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Interrupt a run that has shown enough; what it has printed."""
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=240)


class Ended(NamedTuple):
    """A run that has reached its deadline."""

    output: Path
    seconds: int
    result: subprocess.CompletedProcess[str]


def run_until(output: Path, seconds: int, enough: Callable[[Path], object], *words: object, **how: Any) -> Ended:
    """A run to its deadline, repeated with twice the time if a busy machine did not do enough."""
    options = ("--duration", f"{seconds}s", "--output", output)
    result = aiperf("run", *SIMULATED, *options, *map(str, words), **how)
    if result.returncode or enough(output) or seconds > 100:
        return Ended(output, seconds, result)
    return run_until(output.with_name(f"{output.name} again"), 2 * seconds, enough, *words, **how)


def killed_with_time_left(output: Path, seconds: int, epochs: int, *words: object) -> tuple[Path, int]:
    """A run that was killed after some epochs, and its duration: long enough for this machine."""
    with begin(output, "--duration", f"{seconds}s", *words) as process:
        wait_for(lambda: count_epochs(output) >= epochs or process.poll() is not None)
        process.kill()
        process.communicate(timeout=240)
    nothing_is_left(output, 60)
    if '"run_ended"' not in history(output):
        return output, seconds
    return killed_with_time_left(output.with_name(f"{output.name} again"), 2 * seconds, epochs, *words)


def agents(output: Path, replica: int | None = None) -> list[psutil.Process]:
    """The agents of a run, of all replicas or of one."""
    found = []
    for process in processes_with(output):
        words = words_of(process)
        if words[1:4] == ["-P", "-m", "replica"] and replica in (None, int(words[words.index("--replica") + 1])):
            found.append(process)
    return found


def own_processes(output: Path) -> list[psutil.Process]:
    """The processes of a run, but for SLURM's programs that started some of them."""
    return [process for process in processes_with(output) if ask(process.name, "") not in ("srun", "salloc")]


def nothing_is_left(output: Path, timeout_s: float = 0) -> None:
    """No process of a run is there any more: at once, or at the latest after some time."""
    end = time.monotonic() + timeout_s
    while left := [*filter(None, map(command, processes_with(output)))]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


SMALL_SERIES = (
    "--suite",
    "science",
    "--rehearsal",
    "--workload",
    "hepcnn",
    "--duration",
    "30m",
    "--set",
    "training.trainer=simulated",
    "--set",
    "simulated.epoch_seconds=0.3",
    "--set",
    "science.max_epochs=6",
)
"""A series of runs that end by themselves: whenever they are interrupted, time is left."""


def interrupt_series(output: Path, *words: str, orphan: bool) -> None:
    """Kill a series in its second run, which goes on by itself as an orphan if the test wants so.

    The same command then ends with the same runs.
    """
    command = [sys.executable, "-m", "aiperf", "scale", *SMALL_SERIES, *words, "--output", str(output)]
    with Watched([*command, "--counts", "1,2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as series:
        wait_for_epochs(output / "replicas-0002")
        programs = [] if orphan else psutil.Process(series.pid).children()
        series.kill()
        for program in programs:
            ask(program.kill, None)
    kept = {file: file.stat().st_mtime_ns for file in output.glob("*/run.json")}
    done = subprocess.run(
        [*command, "--counts", "1,2,3", "--format", "json"], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [row["replicas"] for row in json.loads(done.stdout)["rows"]] == [1, 2, 3]
    assert {file: file.stat().st_mtime_ns for file in kept} == kept, "no run begins anew"
    ends = [
        [record["reason"] for record in raw_records(run) if record["type"] == "run_ended"]
        for run in sorted(output.glob("replicas-*"))
    ]
    assert ends == [["completed"]] * 3


def unpacked(folder: Path) -> RunPaths:
    """An interrupted simulated run of version 0.1.0 with two replicas and 36 trials."""
    with tarfile.open(GOLDEN / "run-0.1.0.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return open_run(folder / "run-0.1.0")
