"""`aiperf status` of a run of 512 replicas in progress, from its primary's snapshot."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from aiperf.clock import SystemClock
from aiperf.config.settings import RunConfig, load_config
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Progress
from primary.display.snapshot import SnapshotDisplay
from primary.display.state import LiveReplica, LiveRun

REPLICAS, CALLS = 512, 5


def measure(scratch: Path) -> dict[str, float]:
    """Median wall and CPU seconds of the command from its start to its end."""
    config = load_config(overrides={"run.replicas": REPLICAS, "run.duration": "12h"})
    (paths, view), clock = made_in_progress(scratch / "status", config), SystemClock()
    walls, cpus = list[float](), list[float]()
    with Claim.acquire(paths.claims, clock):
        for _ in range(CALLS):
            SnapshotDisplay(paths, config, clock).refresh(view)
            wall_s, cpu_s = ask(paths.root, "running")
            walls.append(wall_s)
            cpus.append(cpu_s)
    return {"status_s": median(walls), "status_cpu_s": median(cpus)}


def made_in_progress(root: Path, config: RunConfig) -> tuple[RunPaths, LiveRun]:
    """The directory of a run in progress, and what its primary would show of it."""
    paths = RunPaths(root)
    paths.create()
    write_manifest(paths, config)
    nodes = {str(replica): {"host": f"gpu{replica:04d}", "accelerators": 8} for replica in range(REPLICAS)}
    paths.system.write_text(json.dumps(nodes), encoding="utf-8")
    return paths, _view(config.run.duration)


def _view(duration_s: float) -> LiveRun:
    """Every replica trains, the later ones for longer."""
    view = LiveRun(duration_s, [LiveReplica(number, "working") for number in range(REPLICAS)], elapsed_s=3600.0)
    for each in view.replicas:
        each.take(
            Progress(
                trial=each.replica + 1, phase="train", epoch=2, epochs=9, accuracy=0.5, operations=10**15 + each.replica
            )
        )
    return view


def ask(root: Path, state: str) -> tuple[float, float]:
    """Wall and CPU seconds of the command, which must say this state."""
    before, began_s = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "aiperf", "status", str(root)], capture_output=True, text=True, check=True
    )
    took_s, after = time.perf_counter() - began_s, os.times()
    if f": {state}" not in done.stdout.splitlines()[0]:
        raise SystemExit(f"aiperf status says of a run that is {state}: {done.stdout[:200]}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return took_s, cpu_s
