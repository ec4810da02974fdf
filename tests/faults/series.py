"""Kills of a series of runs at moments all over it: the same command must end with the same runs.

python -m tests.faults.series --kills 12 [--under local,ssh,slurm]

A series of two small runs is killed at equal distances from its start to its end: its own process,
which leaves its run as an orphan; with the program of the run; or with all processes below it, in
turn. The same command with a third run then has to end well, with each run begun and completed
once, those that were over untouched, and no process left. The last line is `series: kills=<n>
wrong=<n>`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from aiperf.cli.lines import say
from tests.faults.grounds import GROUNDS, Place
from tests.support.processes import ask, command, family, lives, processes_with
from tests.support.runs import SMALL_SERIES, raw_records

WHO = ("the series", "the series and its run", "everything")
"""Processes that a kill ends, in turn."""

LIMIT_S = 600
GONE_S = 60.0


@dataclass(frozen=True)
class Series:
    """A series under a launcher."""

    output: Path
    place: Place

    def words(self, counts: str) -> list[str]:
        """The command of this series with these counts."""
        own = ["scale", *SMALL_SERIES, *self.place.words, "--output", str(self.output), "--counts", counts]
        return [sys.executable, "-m", "aiperf", *own, "--format", "json"]

    def whole(self, counts: str) -> subprocess.CompletedProcess[str]:
        """The series to its end."""
        environment = {**os.environ, **self.place.environment}
        return subprocess.run(
            self.words(counts), env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def killed(self, after_s: float, who: str) -> None:
        """Begin the series, and kill it after this time."""
        environment = {**os.environ, **self.place.environment}
        with subprocess.Popen(
            self.words("1,2"), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(after_s)
            own = psutil.Process(process.pid)
            below: list[psutil.Process] = []
            if who == WHO[1]:
                below = ask(own.children, list[psutil.Process]())
            elif who == WHO[2]:
                below = [each for each in family(process.pid) if each.pid != process.pid]
            process.kill()
            for each in below:
                ask(each.kill, None)

    def state(self) -> dict[str, str]:
        """The runs that are there, by folder: how far each is."""
        return {run.name: self._how_far(run) for run in sorted(self.output.glob("replicas-*"))}

    def _how_far(self, run: Path) -> str:
        if not (run / "run.json").exists():
            return "folders"
        try:
            kinds = {record["type"] for record in raw_records(run)}
        except (OSError, ValueError, KeyError):
            return "an unfinished record"
        if "run_ended" in kinds:
            return "reported" if (run / "report" / "report.json").exists() else "ended"
        return "released" if "run_released" in kinds or "epoch" in kinds else "begun"

    def problems(self, before: Mapping[str, str], marks: Mapping[str, int]) -> Iterator[str]:
        """What is wrong when the series is resumed with a third run."""
        done = self.whole("1,2,3")
        if done.returncode != 0:
            yield f"exit code {done.returncode}: {done.stderr[-800:]}"
            return
        rows = json.loads(done.stdout)["rows"]
        sizes, differing = (
            [row["replicas"] for row in rows],
            [item for row in rows for item in row["differing_settings"]],
        )
        if sizes != [1, 2, 3] or differing:
            yield f"rows of {sizes}; settings that differ: {differing}"
        for run in sorted(self.output.glob("replicas-*")):
            reasons = [record["reason"] for record in raw_records(run) if record["type"] == "run_ended"]
            if reasons != ["completed"]:
                yield f"{run.name} ended {reasons}"
        for name, mark in marks.items():
            if (self.output / name / "run.json").stat().st_mtime_ns != mark:
                yield f"{name} began anew"
        yield from self._left()

    def _left(self) -> Iterator[str]:
        end_s = time.monotonic() + GONE_S
        while left := [each for each in processes_with(self.output) if lives(each)]:
            if time.monotonic() > end_s:
                yield f"left: {[command(each) for each in left]}"
                return
            time.sleep(0.2)
        yield from self.place.left()


def attacked(place: Place, folder: Path, kills: int) -> Iterator[tuple[str, list[str]]]:
    """Kill a series at so many moments: what each met, and what was wrong then."""
    whole = Series(folder / "whole", place)
    began_s = time.monotonic()
    done = whole.whole("1,2")
    took_s = time.monotonic() - began_s
    if done.returncode != 0:
        yield "without a kill", [f"exit code {done.returncode}: {done.stderr[-800:]}"]
        return
    for number in range(kills):
        series, who = Series(folder / f"killed-{number}", place), WHO[number % len(WHO)]
        after_s = took_s * (number + 0.5) / kills
        series.killed(after_s, who)
        before = series.state()
        marks = {
            name: (series.output / name / "run.json").stat().st_mtime_ns for name in before if before[name] != "folders"
        }
        problems = [*series.problems(before, marks)]
        yield f"{who} after {after_s:.1f} of {took_s:.1f} s, {before}", problems


def main(words: Sequence[str] | None = None) -> int:
    """Kill, resume, and print what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12, help="kills under each launcher")
    parser.add_argument("--under", default="local", help="local, ssh, slurm")
    arguments = parser.parse_args(words)
    kills = wrong = 0
    for name in arguments.under.split(","):
        ground = GROUNDS.load(name)
        if missing := ground.missing():
            say(f"under {name}: this machine lacks {missing}")
            continue
        with (
            tempfile.TemporaryDirectory(prefix="aiperf-series-") as folder,
            ground.open(Path(folder) / "ground") as place,
        ):
            for met, problems in attacked(place, Path(folder), arguments.kills):
                kills += 1
                wrong += bool(problems)
                say(f"under {name}: {met}: {'right' if not problems else 'WRONG'}", *problems)
    say(f"series: kills={kills} wrong={wrong}")
    return 0 if kills and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
