"""The words about a run at many moments: `python -m tests.faults.states --seeds 300`.

Each seed is a rehearsal with faults (`tests.faults.rehearsals`), which is cut off at moments from
before its release to after its end. At each of them status, dashboard, page, report, ranking and
exit code must agree with one another, and with a reading of the raw lines.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from aiperf.cli.lines import say
from aiperf.clock import SystemClock, parse_utc
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.state import IN_PROGRESS
from analysis.output.page.vocabulary import badge
from analysis.report.build import build_report
from analysis.report.state import read_now
from analysis.results.ranking import rank
from analysis.results.source import RunResult
from analysis.results.status import run_status
from analysis.verbs.status import _status_line
from dashboard.wording import sentence_of, state_of
from dashboard.work import Answer
from primary.cli import exit_code
from rehearsal.lifecycle import conduct
from rehearsal.machine.file import ClocksSection
from tests.faults.recount import Line, read_lines
from tests.faults.rehearsals import drawn_rehearsal

MOMENTS = 20
REPLICAS, DURATION = 3, "10m"

FIRST_WORDS = {
    "starting": "waiting for",
    "running": "running (simulated",
    "interrupted": "interrupted",
    "ended": "ended: deadline",
    "failed": "failed",
}
"""The first words of status by the state of the run."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Files of two claims: of a process that lives, and of one that has died."""

    alive: bytes
    dead: bytes

    @classmethod
    def made(cls, folder: Path) -> Claims:
        """Claim a folder in a child that dies of it, and another one in this process."""
        folders = folder / "dead", folder / "alive"
        child = os.fork()
        if child == 0:
            Claim.acquire(folders[0], SystemClock())
            os._exit(9)
        os.waitpid(child, 0)
        Claim.acquire(folders[1], SystemClock())
        dead, alive = ((each / "000001.json").read_bytes() for each in folders)
        return cls(alive, dead)


@dataclass(frozen=True, slots=True)
class Expected:
    """A run at a moment, by its raw lines."""

    state: str
    present: int
    """Replicas that have come; before the release all that are asked for."""
    away: frozenset[int]
    """Replicas that are lost, or have not come."""
    best: float
    """The best accuracy of an epoch."""


class CutRun:
    """A rehearsal as it was at a moment of its primaries' clock, which all nodes of it share."""

    def __init__(self, whole: Path, cut: Path, claims: Claims) -> None:
        self._files = {
            file.name: [(parse_utc(json.loads(line)["time"]), line) for line in file.read_text().splitlines()]
            for file in sorted((whole / "history").glob("*.jsonl"))
        }
        self._whole = whole
        self._cut = cut
        self._claims = claims
        shutil.copytree(whole, cut, ignore=shutil.ignore_patterns("history", "claims", "digest", "report"))
        self.duration_ms = round(1000 * json.loads((whole / "run.json").read_text())["config"]["run"]["duration"])

    @property
    def ends(self) -> tuple[int, int]:
        """The times of the first and of the last record."""
        times = [time for lines in self._files.values() for time, _ in lines]
        return min(times), max(times)

    def at(self, now_ms: int) -> Expected:
        """Cut the run off, and say what is expected of it."""
        for name in ("history", "claims", "digest"):
            shutil.rmtree(self._cut / name, ignore_errors=True)
            (self._cut / name).mkdir()
        alive, come, closed = True, set[str](), set[int]()
        for name, lines in self._files.items():  # those of primaries first
            kept = [line for time, line in takewhile(lambda each: each[0] <= now_ms, lines)]
            if name.startswith("primary-") and kept:
                alive = len(kept) < len(lines)
                bodies = [json.loads(line)["data"] for line in kept]
                come |= {f"{body['writer']}.jsonl" for body in bodies if body["type"] == "replica_ready"}
                closed |= {body["trial"] for body in bodies if body["type"] == "trial_closed"}
            # An agent makes its file before it is ready; a primary that died at once left one.
            if kept or name in come or not lines:
                (self._cut / "history" / name).write_text("".join(f"{line}\n" for line in kept))
        self._cut_digests(closed)
        by_state = self._claims.alive if alive else self._claims.dead
        expected = self._expected(now_ms, alive)
        if expected.state != "ended":  # a primary that ends its run gives it up
            (self._cut / "claims" / "000001.json").write_bytes(by_state)
        return expected

    def _cut_digests(self, closed: set[int]) -> None:
        """Leave out what digests had of trials that are not closed yet; each is one file here."""
        for file in (self._whole / "digest").glob("*/*.jsonl"):
            entries = [(json.loads(line), line) for line in file.read_text().splitlines()]
            known = takewhile(lambda each: each[0].get("entry") != "over" or each[0]["trial"] in closed, entries)
            cut = self._cut / "digest" / file.parent.name / file.name
            cut.parent.mkdir()
            cut.write_text("".join(f"{line}\n" for _, line in known))

    def _expected(self, now_ms: int, alive: bool) -> Expected:
        lines = read_lines(self._cut)
        of: dict[str, list[Line]] = defaultdict(list)
        for line in lines:
            of[line[1]["type"]].append(line)
        released, ended, resumed = of["run_released"], of["run_ended"], of["run_resumed"]
        is_over = bool(ended) and (not resumed or resumed[-1][0] < ended[-1][0])
        best = max((data["correct"] / data["images_evaluated"] for _, data in of["epoch"]), default=0.0)
        if is_over:
            state = {"deadline": "ended", "completed": "ended"}.get(ended[-1][1]["reason"], "interrupted")
            if state != "ended" and not released:
                state = "failed"
        elif alive:
            state = "running" if released else "starting"
        else:
            state = "interrupted"
        if state == "interrupted" and released and now_ms >= released[-1][0] + self.duration_ms:
            state = "failed"
        seen: dict[int, list[tuple[int, bool]]] = {replica: [(0, False)] for replica in range(REPLICAS)}
        for kind in ("replica_ready", "replica_lost"):
            for ms, data in of[kind]:
                seen[data["replica"]].append((ms, kind == "replica_ready"))
        away = frozenset(replica for replica, moments in seen.items() if not max(moments)[1])
        present = sum(any(came for _, came in moments) for moments in seen.values()) if released else REPLICAS
        return Expected(state, present, away, best)


def contradictions(run: Path, now_ms: int, expected: Expected) -> Iterator[str]:
    """Words about the run at this moment that differ from others, or from what is expected."""
    data, state, holder = read_now(RunPaths(run), now_ms)
    report = build_report(data, state)
    status = run_status(data, report, holder, now_ms)
    (row,) = rank([RunResult(run, report, True, data.damages)], "score").rows
    said = _status_line(status).partition(": ")[2]
    in_progress, answer = expected.state in IN_PROGRESS, Answer(status=status)
    words: dict[str, tuple[object, object]] = {
        "damages": (data.damages, ()),
        "state": (state, expected.state),
        "state of status": (status.state, state),
        "state of report": (report.state, state),
        "state of dashboard": (state_of(answer), state),
        "first words of status": (said.startswith(FIRST_WORDS[expected.state]), True),
        "status of report": (report.status, "RUNNING" if in_progress else report.status),
        "verdict": (report.verdict == "running", in_progress),
        "last line": (report.final_line.rpartition("status=")[2], report.status),
        "replicas of the last line": (f" replicas={expected.present} " in report.final_line, True),
        "ranking": (row.status, report.verdict),
        "badge": (badge(report), state if in_progress or state == "interrupted" else report.verdict),
        "so far": ("so far" in sentence_of(answer), state == "running" and status.score_ops is not None),
        "resume": ("resume it with" in sentence_of(answer), state == "interrupted"),
        "resume of status": ("resume it with" in said, state == "interrupted"),
        "error": ((status.error, row.error), (report.error, report.error)),
        "score": ((status.score_ops, row.score_ops), (report.score_ops, None if in_progress else report.score_ops)),
        "best accuracy": (round(1 - report.error, 4), round(max(expected.best, 0.0), 4) if expected.best < 1 else 1.0),
    }
    if status.ended is not None:
        words["exit code"] = (exit_code(status.ended), 0 if state == "ended" else 1)
    if state == "ended":
        words["a replica is left"] = ("(no replica was left)" not in said, len(expected.away) < REPLICAS)
    if state == "running":
        away = {each.replica for each in status.replicas if each.state in ("lost", "absent")}
        words["replicas that are away"] = (away, set(expected.away))
    for what, (found, wanted) in words.items():
        if found != wanted:
            yield f"{expected.state}: {what}: {found!r} in place of {wanted!r}"


def judge_seed(seed: int, folder: Path, claims: Claims, moments: int = MOMENTS) -> list[str]:
    """The contradictions at moments of the rehearsal of a seed."""
    drawn = drawn_rehearsal(seed, REPLICAS, DURATION)
    # All clocks agree, so that a moment is the same in all files.
    machine = drawn.machine.model_copy(update={"clocks": ClocksSection()})
    conduct(folder / "whole", replace(drawn, machine=machine))
    run = CutRun(folder / "whole", folder / "cut", claims)
    first_ms, last_ms = run.ends
    rng, found = random.Random(f"moments {seed}"), list[str]()
    after = last_ms + 1, last_ms + run.duration_ms  # its deadline has passed for sure
    for moment in sorted([*after, *(rng.randint(first_ms, last_ms) for _ in range(moments - len(after)))]):
        expected = run.at(moment)
        found += [
            f"seed {seed} at {moment - first_ms} ms: {line}"
            for line in contradictions(folder / "cut", moment, expected)
        ]
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Judge seeds, and print contradictions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=1)
    arguments = parser.parse_args(words)
    logging.disable(logging.ERROR)
    clock, bad = SystemClock(), 0
    began_s = clock.monotonic_s()
    with tempfile.TemporaryDirectory(prefix="aiperf-states-") as claimed:
        claims = Claims.made(Path(claimed))
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            with tempfile.TemporaryDirectory(prefix="aiperf-states-") as folder:
                problems = judge_seed(seed, Path(folder), claims)
            bad += bool(problems)
            say(*problems[:5])
            say(f"seed {seed}: {clock.monotonic_s() - began_s:.0f} s, bad={bad}")
    say(f"rehearsals={arguments.seeds} moments={MOMENTS * arguments.seeds} bad={bad}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
