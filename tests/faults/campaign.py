"""The fault campaign: random SIGKILLs in real runs, after which the books are checked.

python -m tests.faults.campaign --kills 100 [--seed 1] [--trainer simulated|keras]

The last line is `faults: kills=<n> lost=<n> doubled=<n> leftovers=<n>`; all but the first must be
0. *Lost* are epochs that were reported to the primary (its log says so) and that the history list
does not have; *doubled* are those that it has twice; *leftovers* are processes and temporary files.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from aiperf.errors import EXIT_USAGE
from testing.processes import command, family, lives, processes_with
from tests.faults.recount import operations_total

KILLS_PER_RUN = 20
ENDING_S = 2.0
"""After the run, for processes that notice that theirs is gone."""

REPORTED = re.compile(r"trial (\d+) completed epoch (\d+)$")


@dataclass
class Toll:
    """The cost of a campaign."""

    kills: int = 0
    lost: int = 0
    doubled: int = 0
    leftovers: int = 0

    def __str__(self) -> str:
        return f"faults: kills={self.kills} lost={self.lost} doubled={self.doubled} leftovers={self.leftovers}"

    @property
    def clean(self) -> bool:
        return self.lost == self.doubled == self.leftovers == 0


class Campaign:
    """One run that is attacked until this many kills are done, then ends at its deadline."""

    def __init__(self, output: Path, seed: int, trainer: str) -> None:
        self._output = output
        self._random = random.Random(seed)
        self._trainer = trainer
        self._primary: subprocess.Popen[bytes] | None = None

    def run(self, kills: int) -> Toll:
        """Attack a run of three replicas."""
        slow = self._trainer == "keras"
        pause_s = (4.0, 12.0) if slow else (0.2, 1.5)
        toll = Toll()
        self._start(round(kills * sum(pause_s) / 2 + (45 if slow else 15 + kills)))
        while toll.kills < kills and self._running():
            time.sleep(self._random.uniform(*pause_s))
            toll.kills += self._kill_one()
            self._go_on()
        while self._running():
            time.sleep(0.2)
            self._go_on()
        self._check(toll)
        return toll

    def _start(self, duration_s: int) -> None:
        settings = [f"training.trainer={self._trainer}", "replica.restarts=1000", "replica.retry_delay=0.1",
                    "replica.max_failed_trials=1000", "training.checkpoint_interval=0.1", "training.max_epochs=8",
                    "simulated.epoch_seconds=0.3", "search.max_growth=1.2"]  # fmt: skip
        words = [word for setting in settings for word in ("--set", setting)]
        self._command("run", "--dataset", "digits", "--replicas", "3", "--duration", f"{duration_s}s", *words,
                      "--output", str(self._output))  # fmt: skip

    def _command(self, *words: str) -> None:
        with (self._output.parent / "output").open("ab") as log:
            self._primary = subprocess.Popen([sys.executable, "-m", "aiperf", *words], stdout=log, stderr=log)

    def _ended(self) -> bool:
        files = (self._output / "history").glob("primary-*.jsonl")
        return any('"reason":"deadline"' in file.read_text(errors="replace") for file in files)

    def _running(self) -> bool:
        assert self._primary is not None
        # A primary that was killed as the deadline passed leaves nothing to resume.
        refused = self._primary.poll() == EXIT_USAGE
        return self._primary.poll() is None or not (self._ended() or refused)

    def _go_on(self) -> None:
        """Resume if the primary died."""
        assert self._primary is not None
        if self._primary.poll() is not None and self._running() and (self._output / "run.json").exists():
            self._command("resume", str(self._output))

    def _kill_one(self) -> int:
        """Kill a random process of a random kind: rank, agent or primary."""
        kinds: dict[str, list[psutil.Process]] = {"primary": [], "agent": [], "rank": []}
        for process in processes_of(self._output):
            words = command(process)
            kind = "agent" if "-m replica " in words else "rank" if "replica.trainer" in words else "primary"
            kinds[kind].append(process)
        choices = [kind for kind, found in kinds.items() if found]
        if not choices or not (self._output / "history").exists():
            return 0
        victim = self._random.choice(kinds[self._random.choice(choices)])
        try:
            victim.kill()
        except psutil.NoSuchProcess:
            return 0
        return 1

    def _check(self, toll: Toll) -> None:
        reported = set()
        for line in (self._output / "logs/primary.log").read_text(errors="replace").splitlines():
            match = REPORTED.search(line)
            if match:
                reported.add((int(match[1]), int(match[2])))
        kept = Counter(
            (data["trial"], data["epoch"])
            for file in (self._output / "history").glob("*.jsonl")
            for line in file.read_text().splitlines()
            if line.endswith('"}') and (data := json.loads(line)["data"])["type"] == "epoch"
        )
        toll.lost = len(reported - set(kept))
        toll.doubled = sum(count > 1 for count in kept.values())
        end = time.monotonic() + ENDING_S
        while processes_of(self._output) and time.monotonic() < end:
            time.sleep(0.2)
        toll.leftovers = len(processes_of(self._output)) + len(list(self._output.rglob(".*.tmp")))


def processes_of(output: Path) -> list[psutil.Process]:
    """Primary, agents and ranks of a run, by command line or parent."""
    found = {}
    for head in processes_with(output):
        ranks = [member for member in family(head)[1:] if "replica" in command(member) and lives(member)]
        found.update({process.pid: process for process in (head, *ranks)})
    return list(found.values())


def recomputed(output: Path) -> tuple[str, list[str]]:
    """Complain if report, raw records or `aiperf verify` disagree."""
    shown = subprocess.run([sys.executable, "-m", "aiperf", "report", str(output)], capture_output=True, text=True,
                           check=True)  # fmt: skip
    reported = json.loads((output / "report/report.json").read_text())["operations_total"]
    counted = operations_total(output)
    if reported != counted:
        raise SystemExit(f"{output}: the report says {reported} operations, the raw records say {counted}")
    if still_open := unclosed(output):
        raise SystemExit(f"{output}: not closed exactly once: trials {still_open}")
    verified = subprocess.run([sys.executable, "-m", "aiperf", "verify", str(output)], capture_output=True, text=True,
                              check=False)  # fmt: skip
    return shown.stdout.splitlines()[-1], verified.stdout.splitlines()[:-1]


def unclosed(output: Path) -> list[int]:
    """Jobs that the primaries did not close exactly once, from raw records.

    The primary may be killed between the end of the run and the last closing of a replica.
    """
    texts = [file.read_text() for file in sorted((output / "history").glob("primary-*.jsonl"))]
    bodies = [json.loads(line)["data"] for text in texts for line in text.splitlines() if line.endswith('"}')]
    closed = Counter(body["trial"] for body in bodies if body["type"] == "trial_closed")
    issued = {body["trial"]: body["replica"] for body in bodies if body["type"] == "job_issued"}
    last = set({replica: trial for trial, replica in issued.items()}.values())
    return [trial for trial in sorted({*issued, *closed})
            if closed[trial] != 1 and not (closed[trial] == 0 and trial in last)]  # fmt: skip


def campaign(kills: int, seed: int, trainer: str) -> Toll:
    """As many runs as it takes."""
    total = Toll()
    while total.kills < kills:
        with tempfile.TemporaryDirectory() as name:
            output = Path(name) / "run"
            wanted = min(KILLS_PER_RUN, kills - total.kills)
            print(f"seed {seed}: {wanted} kills", flush=True)
            toll = Campaign(output, seed, trainer).run(wanted)
            last, problems = recomputed(output)
            print(f"  {toll}\n  {last}", *problems, sep="\n  ", flush=True)
            if problems:
                raise SystemExit(f"seed {seed}: the run directory is not whole")
        total = Toll(*(getattr(total, f) + getattr(toll, f) for f in ("kills", "lost", "doubled", "leftovers")))
        seed += 1
    return total


def main() -> int:
    """Run a campaign; 1 where anything was lost, doubled or left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trainer", choices=("simulated", "keras"), default="simulated")
    arguments = parser.parse_args()
    total = campaign(arguments.kills, arguments.seed, arguments.trainer)
    print(total)
    return 0 if total.clean else 1


if __name__ == "__main__":
    sys.exit(main())
