"""Slow replicas in rehearsals of 512 replicas and one hour: those that are found, and the others.

Of the replicas of half the rehearsals one in a hundred is slower by 8 %; those of the other half
are even. Each rehearsal has another seed, which draws the slow ones, their networks and the noise
of their epochs (1 %).
"""

import sys
from pathlib import Path

from aiperf.config.settings import load_config
from aiperf.run_directory.paths import open_run
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from rehearsal.cluster import is_straggler
from rehearsal.lifecycle import Rehearsal, conduct
from rehearsal.machine.file import FOLDER, read_machine

REPLICAS, DURATION, FACTOR, SHARE, PAIRS = 512, "1h", 1.08, 0.01, 3


def measure(scratch: Path) -> dict[str, float]:
    """The share of slow replicas that is named, and the most others that one report names."""
    planted, found, accused, even = 0, 0, 0, 0
    for seed in range(1, PAIRS + 1):
        slow, named = rehearsed(scratch / f"slow-{seed}", seed, SHARE)
        _, among_even = rehearsed(scratch / f"even-{seed}", seed, 0.0)
        planted, found = planted + len(slow), found + len(slow & named)
        accused, even = max(accused, len(named - slow)), max(even, len(among_even))
        print(
            f"seed {seed}: slow {sorted(slow)}, named {sorted(named)}, of the even ones {sorted(among_even)}",
            file=sys.stderr,
        )
    return {"slow_found_share": found / planted, "slow_accused_most": accused, "slow_accused_even": even}


def rehearsed(root: Path, seed: int, share: float, replicas: int = REPLICAS) -> tuple[set[int], set[int]]:
    """The slow replicas of a rehearsal, and those that its report names."""
    settings = {
        "run.replicas": replicas,
        "run.duration": DURATION,
        "run.seed": seed,
        "training.trainer": "simulated",
        "search.strategy": "unguided",
        "search.hpo": "unguided",
    }
    machine = read_machine(FOLDER / "h100-8x8.toml")
    machine = machine.model_copy(
        update={
            "stragglers": machine.stragglers.model_copy(update={"share": share, "factor": FACTOR}),
            "step": machine.step.model_copy(update={"spread": 0.01}),
            "failures": type(machine.failures)(),
        }
    )
    conduct(root, Rehearsal(load_config(overrides=settings), machine, report_s=60.0))
    comparison = build_report(read_run(open_run(root))).comparison
    assert comparison is not None
    slow = {replica for replica in range(replicas) if is_straggler(seed, replica, share)}
    return slow, {effect.replica for effect in comparison.slow}
