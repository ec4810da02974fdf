"""Seeded rehearsals with faults, each judged by its books: a seed that fails is a bug report.

`python -m tests.faults.rehearsals --seeds 1000 --replicas 64 --duration 1h`. As FoundationDB does
it (Zhou et al. 2021, section 4): all of a cluster in one process, in virtual time, with faults.
"""

import argparse
import logging
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from aiperf.cli.lines import say
from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.records.bodies import JobIssued, TrialClosed, TrialEnded
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.results.verify import verify
from rehearsal.lifecycle import Outcome, Rehearsal, conduct
from rehearsal.machine.file import MachineFile
from rehearsal.virtual.loop import DeadlockError
from tests.faults.recount import operations_total

LEAST_S = 0.002
"""Seconds that rounding to milliseconds may make of a wall time."""


def drawn_machine(seed: int, replicas: int) -> MachineFile:
    """A machine on which much goes wrong, another one for each seed."""
    rng = random.Random(f"machine {seed}")
    return MachineFile.model_validate(
        {
            "machine": {"name": f"machine of seed {seed}"},
            "node": {"accelerators": rng.choice([1, 4, 8])},
            "step": {"operations_per_s": 10 ** rng.uniform(13.5, 15), "spread": rng.choice([0.0, 0.05])},
            "start": {
                "replica_s": rng.choice([0.0, 5.0, 60.0]),
                "spread_s": rng.choice([0.0, 30.0]),
                "together": rng.choice([2, 64]),
                "build_s": rng.choice([0.0, 30.0, 120.0]),
            },
            "storage": {"write_s": rng.choice([0.0, 0.005, 0.5, 5.0]), "spread": rng.choice([0.0, 1.0])},
            "clocks": {"offset_s": rng.choice([0.0, 0.5, 30.0]), "drift_ppm": rng.choice([0.0, 5.0, 50.0])},
            "stragglers": {"share": rng.choice([0.0, 0.1]), "factor": 3.0},
            "failures": {
                "node_mtbf_h": replicas * rng.choice([0.2, 1.0, 5.0]),
                "rank_mtbf_h": replicas * rng.choice([1.0, 10.0]),
                "rack_nodes": max(2, replicas // 4),
                "rack_mtbf_h": rng.choice([2.0, 20.0]),
                "primary_mtbf_h": rng.choice([0.3, 2.0, 50.0]),
                "restart_s": rng.choice([1.0, 30.0, 300.0]),
                "storage_mtbf_h": rng.choice([0.3, 2.0, 50.0]),
                "storage_s": rng.choice([1.0, 20.0, 120.0]),
            },
        }
    )


def drawn_rehearsal(seed: int, replicas: int, duration: str) -> Rehearsal:
    """The rehearsal of a seed."""
    machine, rng = drawn_machine(seed, replicas), random.Random(f"groups {seed}")
    config = load_config(
        overrides={
            "run.replicas": replicas,
            "run.duration": duration,
            "run.seed": seed,
            "training.trainer": "simulated",
            "search.strategy": "random",
            "search.hpo": "random",
            "training.groups": min(machine.node.ranks, rng.choice([1, 2, 4])),
            "training.parameter_servers": rng.choice([1, 3]),
        }
    )
    return Rehearsal(config, machine)


def judge(root: Path, outcome: Outcome) -> list[str]:
    """What is lost, doubled or wrong after a rehearsal."""
    paths = RunPaths(root)
    problems = list(verify(paths)) + [str(damage) for damage in read_run(paths).damages]
    if outcome.ended is None:
        return problems  # its last primary died too close to the deadline to be resumed
    report = build_report(read_run(paths))
    if outcome.ended != "deadline":
        return [*problems, f"it ended by {outcome.ended}"]
    if report.status != "SIMULATED":
        problems.append(f"its status is {report.status}")
    if report.operations_total != (again := operations_total(root)):
        problems.append(f"{report.operations_total} operations, counted again {again}")
    return [*problems, *_unbalanced(paths), *_hours(report)]


def _hours(report: Report) -> Iterator[str]:
    """Replicas and nodes whose productive and lost time is not the wall time of the run."""
    for part in report.replica_details:
        if abs(sum(part.phases_s.values()) - report.duration_s) > LEAST_S:
            yield f"the phases of replica {part.replica} take {sum(part.phases_s.values()):.3f} s"
    goodput, walls = report.goodput, defaultdict[str, float](float)
    if goodput is None:
        yield "it has no goodput"
        return
    for part in report.replica_details:
        weight = max(1, part.accelerators) if goodput.unit == "accelerator" else 1
        walls[part.node or f"replica {part.replica}"] += weight * report.duration_s / 3600
    if {node.node for node in goodput.nodes} != walls.keys():
        yield f"hours of {len(goodput.nodes)} nodes, of {len(walls)}"
    for each in goodput.nodes:
        found = each.productive_h + sum(lost.hours for lost in each.lost)
        if max(abs(found - walls[each.node]), abs(each.hours - walls[each.node])) > LEAST_S / 3600:
            yield f"{each.node}: {found:.6f} of {walls[each.node]:.6f} hours are productive or lost"
    if abs(goodput.productive_h + sum(lost.hours for lost in goodput.lost) - sum(walls.values())) > LEAST_S / 3600:
        yield f"productive and lost hours do not sum to {sum(walls.values()):.6f}"


def _unbalanced(paths: RunPaths) -> Iterator[str]:
    """Trials that were issued, resumed or closed more than once, or forgotten."""
    issued, resumed, closed = Counter[int](), Counter[int](), Counter[int]()
    ended, stopped = set[int](), set[int]()
    for record in HistoryReader(paths).read_new().records:
        body = record.body
        if isinstance(body, JobIssued):
            issued[body.trial] += 1
            if body.resumes is not None:
                resumed[body.resumes] += 1
        elif isinstance(body, TrialClosed):
            closed[body.trial] += 1
            if body.how == "stopped":
                stopped.add(body.trial)
        elif isinstance(body, TrialEnded) and body.reason != "stopped":
            ended.add(body.trial)
    for trial, number in issued.items():
        if (number, closed[trial]) != (1, 1) or resumed[trial] > 1:
            counts = f"{number} times, resumed {resumed[trial]} times and closed {closed[trial]} times"
            yield f"trial {trial} was issued {counts}"
    for trial in ended & stopped:
        yield f"trial {trial} has ended, and its primary did not hear of it"


def rehearse_seed(seed: int, replicas: int, duration: str, root: Path) -> tuple[list[str], Counter[str]]:
    """The problems of one seed, and the faults that happened."""
    try:
        outcome = conduct(root, drawn_rehearsal(seed, replicas, duration))
    except DeadlockError as error:
        return [f"deadlock: {error}"], Counter()
    return judge(root, outcome), Counter(fault.kind for fault in outcome.faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--duration", default="1h")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    clock, faults, bad = SystemClock(), Counter[str](), 0
    began_s = clock.monotonic_s()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        with tempfile.TemporaryDirectory(prefix="aiperf-rehearsal-") as folder:
            problems, happened = rehearse_seed(seed, arguments.replicas, arguments.duration, Path(folder) / "run")
        faults += happened
        bad += bool(problems)
        for problem in problems[:5]:
            say(f"seed {seed}: {problem}")
    told = " ".join(f"{kind}={number}" for kind, number in sorted(faults.items()))
    say(f"rehearsals={arguments.seeds} bad={bad} {told} seconds={clock.monotonic_s() - began_s:.0f}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
