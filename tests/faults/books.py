"""The books of a run that was attacked, counted again from its raw files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from aiperf.run_directory.paths import open_run
from analysis.results.verify import verify
from tests.faults.attacked import LOOK_S, PATIENCE_S, Attacked
from tests.faults.recount import operations_total
from tests.support.processes import words_of

REPORTED = re.compile(r"trial (\d+) completed epoch (\d+)$")

KEPT_ASIDE = ".foreign: does not belong to the run"
"""What `aiperf verify` says of a file that took the place of a writer's, and was kept."""


@dataclass
class Books:
    """What must be 0 at the end. *Lost* epochs were reported to the primary and are not recorded;
    *doubled* ones are recorded twice; *leftovers* are processes, jobs and temporary files;
    *wrong_status* counts exit codes, results and files that are not as they must be; of *double
    claims*, two primaries had a run at once."""

    lost: int = 0
    doubled: int = 0
    leftovers: int = 0
    wrong_status: int = 0
    double_claims: int = 0
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return " ".join(f"{name}={count}" for name, count in self.counts().items())

    def counts(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if name != "notes"}

    @property
    def clean(self) -> bool:
        return not any(self.counts().values())

    def add(self, other: Books) -> None:
        """Sum up."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def close_books(run: Attacked) -> Books:
    """Recount a run that is over."""
    books = Books(double_claims=run.double_claims + overlaps(run.output))
    left = left_of(run)
    books.leftovers = len(left)
    known, kept = reported(run.output), recorded(run.output)
    lost, doubled = sorted(known - set(kept)), [key for key, times in kept.items() if times > 1]
    books.lost, books.doubled = len(lost), len(doubled)
    wrong = [*run.flaws, *wrong_ends(run.output), *work_flaws(run)]
    books.wrong_status = len(wrong)
    books.notes = [
        *(f"lost: {key}" for key in lost),
        *(f"doubled: {key}" for key in doubled),
        *(f"left: {name}" for name in left),
        *wrong,
    ]
    return books


def work_flaws(run: Attacked) -> list[str]:
    """What is wrong with the work of the suite."""
    config = json.loads((run.output / "run.json").read_text())["config"]
    return run.load.flaws(bodies(run.output), config)


def left_of(run: Attacked) -> list[str]:
    """Wait until nothing is left of a run; what stays nevertheless."""
    end = time.monotonic() + PATIENCE_S
    while (run.processes() or run.place.left()) and time.monotonic() < end:
        time.sleep(LOOK_S)
    names = [" ".join(words_of(process)) for process in run.processes()]
    return [*names, *run.place.left(), *map(str, run.output.rglob(".*.tmp"))]


def bodies(output: Path, pattern: str = "*.jsonl") -> list[dict[str, Any]]:
    """What the whole lines of the history list say, with writer and time."""
    lines = [line for file in sorted((output / "history").glob(pattern)) for line in file.read_text().splitlines()]
    found = [json.loads(line) for line in lines if line.endswith('"}')]
    return [{**record["data"], "writer": record["writer"], "time": record["time"]} for record in found]


def reported(output: Path) -> set[tuple[int, int]]:
    """Epochs that the primaries have heard of, by their logs and records."""
    log = (output / "logs/primary.log").read_text(errors="replace")
    logged = {(int(found[1]), int(found[2])) for found in map(REPORTED.search, log.splitlines()) if found}
    return logged | {(b["trial"], b["epoch"]) for b in bodies(output) if b["type"] == "epoch_witnessed"}


def recorded(output: Path) -> Counter[tuple[int, int]]:
    """Epochs in the records of replicas, and how often."""
    return Counter((body["trial"], body["epoch"]) for body in bodies(output) if body["type"] == "epoch")


def overlaps(output: Path) -> int:
    """Primaries that recorded after their successor had begun."""
    files = sorted((output / "history").glob("primary-*.jsonl"), key=lambda file: int(file.stem.split("-")[1]))
    times = [[body["time"] for body in bodies(output, file.name)] for file in files]
    times = [of_one for of_one in times if of_one]
    return sum(earlier[-1] > later[0] for earlier, later in pairwise(times))


def wrong_ends(output: Path) -> list[str]:
    """Complaints if report, raw records and `aiperf verify` disagree, or about the status."""
    shown = subprocess.run(
        [sys.executable, "-m", "aiperf", "report", str(output), "--no-page", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if shown.returncode:
        return [f"aiperf report: exit code {shown.returncode}: {shown.stderr[-1000:]}"]
    report = json.loads(shown.stdout)
    found = [f"verify: {problem}" for problem in map(str, verify(open_run(output))) if KEPT_ASIDE not in problem]
    counted = operations_total(output)
    if report["operations_total"] != counted:
        found.append(f"the report says {report['operations_total']} operations, the raw records say {counted}")
    if still_open := unclosed(output):
        found.append(f"not closed exactly once: trials {still_open}")
    ends = [body["reason"] for body in bodies(output, "primary-*.jsonl") if body["type"] == "run_ended"]
    own = next((reason for reason in ("deadline", "completed") if reason in ends), None)
    passes = "SIMULATED" if report["simulated"] else "UNOFFICIAL"
    due = (passes, own) if own is not None else ("FAILED", report["ended"])
    if (report["status"], report["ended"]) != due:
        found.append(f"status {report['status']}, ended {report['ended']}: {report.get('notices')}")
    return found


def unclosed(output: Path) -> list[int]:
    """Jobs that the primaries did not close exactly once, from raw records.

    The primary may be killed between the end of the run and the last closing of a replica.
    """
    found = bodies(output, "primary-*.jsonl")
    closed = Counter(body["trial"] for body in found if body["type"] == "trial_closed")
    issued = {body["trial"]: body["replica"] for body in found if body["type"] == "job_issued"}
    last = set({replica: trial for trial, replica in issued.items()}.values())
    return [
        trial
        for trial in sorted({*issued, *closed})
        if closed[trial] != 1 and not (closed[trial] == 0 and trial in last)
    ]
