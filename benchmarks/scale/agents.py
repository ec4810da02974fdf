"""Many real agents on one machine, of which random ones are killed: nothing may be lost.

python -m benchmarks.scale.agents [--agents 200] [--kills 20] [--duration 270] [--seed 1]

Real agents and rank processes of the simulated trainer, all on this machine: 60 MB an agent with
its one rank. Only for a quiet machine, of which 200 of them leave nothing for other work. Victims
are drawn from all agents and ranks. The last line is that of `tests.faults.campaign`: all numbers
but the first must be 0. A *wrong status* is also a report that does not count the operations of the
raw records, a trial that is not closed once, or a problem that `aiperf verify` finds.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from aiperf.records.bodies import RunReleased
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.paths import RunPaths
from tests.faults.books import Books, recorded, reported, wrong_ends
from tests.faults.watched import Watched
from tests.support.processes import command

SETTINGS = (
    "training.trainer=simulated",
    "simulated.epoch_seconds=40",
    "training.max_epochs=8",
    "replica.warm_up=false",
    "replica.restarts=1000",
    "replica.max_failed_trials=1000",
    "replica.retry_delay=1",
    "search.max_growth=1.2",
    "search.strategy=random",
    "run.start_timeout=3600",
    "run.replica_silence=600",
    "replica.trial_silence=1800",
    "run.stop_grace=300",
    "telemetry.interval=0",
)
"""Patient: hundreds of processes share a few cores."""

LOOK_S = 1.0
ENDING_S = 60.0
"""After the run, for processes that notice that theirs is gone."""


def start(output: Path, agents: int, duration_s: int) -> subprocess.Popen[bytes]:
    """Start a run in the background, its output in a file next to it."""
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    # The attacker must get its turn: hundreds of processes begin at the same time.
    whole = ["nice", "-n", "10", sys.executable, "-m", "aiperf", "run", "--dataset", "digits",
             "--replicas", str(agents), "--duration", f"{duration_s}s", *words, "--output", str(output)]  # fmt: skip
    with (output.parent / "output").open("ab") as log:
        return subprocess.Popen(whole, stdout=log, stderr=log)


def wait_for_release(output: Path, run: subprocess.Popen[bytes]) -> None:
    """Wait until the run is released, or over."""
    reader = HistoryReader(RunPaths(output), ("primary",))
    while run.poll() is None:
        if any(isinstance(record.body, RunReleased) for record in reader.read_new().records):
            return
        time.sleep(LOOK_S)


def attack(run: subprocess.Popen[bytes], kills: int, rng: random.Random, pause_s: float) -> int:
    """Kill random agents and ranks while the run lasts; their number."""
    done = 0
    while done < kills and run.poll() is None:
        time.sleep(pause_s * rng.uniform(0.5, 1.5))
        try:
            victims = psutil.Process(run.pid).children(recursive=True)
            if not victims:
                continue
            victim = rng.choice(victims)
            what = "agent" if "-m replica " in command(victim) else "rank"
            victim.kill()
        except psutil.NoSuchProcess:
            continue
        done += 1
        print(f"  killed {what} {victim.pid}", flush=True)
    return done


def count(output: Path) -> Books:
    """The cost of the kills, from the primary's log and the raw records."""
    run, end_s = Watched(output), time.monotonic() + ENDING_S
    while run.processes() and time.monotonic() < end_s:
        time.sleep(LOOK_S)
    known, kept, wrong = reported(output), recorded(output), wrong_ends(output)
    print(f"  {len(known)} epochs reported, {kept.total()} recorded", flush=True)
    return Books(
        lost=len(known - set(kept)),
        doubled=sum(times > 1 for times in kept.values()),
        leftovers=len(run.processes()) + len(list(output.rglob(".*.tmp"))),
        wrong_status=len(wrong),
        notes=wrong,
    )


def memory_mb(output: Path) -> float:
    """Memory of all processes of a run, shared pages counted once; in MB."""
    total = 0
    for process in Watched(output).processes():
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1e6


def main() -> int:
    """Attack a run; 1 if anything was lost, doubled or left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--duration", type=int, default=270, help="seconds from the release (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        output = Path(name) / "run"
        began_s = time.monotonic()
        run = start(output, arguments.agents, arguments.duration)
        wait_for_release(output, run)
        print(f"  released after {time.monotonic() - began_s:.0f} s, {memory_mb(output):.0f} MB", flush=True)
        # All kills fall into the first six tenths of the run, as a pause is at most half as long
        # again: the rest is there to recover.
        pause_s = 0.4 * arguments.duration / arguments.kills
        kills = attack(run, arguments.kills, random.Random(arguments.seed), pause_s)
        code = run.wait()
        books = count(output)
        print(f"  aiperf run ended with {code}", *books.notes, sep="\n  ", flush=True)
        print(f"faults: faults={kills} {books}")
        return 0 if books.clean and kills == arguments.kills else 1


if __name__ == "__main__":
    sys.exit(main())
