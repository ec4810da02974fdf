"""The launch time of a run: seconds from `aiperf run` to the last replica's first training step.

python -m benchmarks.launch [--replicas 1,4,50] [--format json]

With the simulated trainer, so that only launching is timed; on this machine directly, over a real
SLURM cluster of four nodes, and over real sshd processes. All replicas share its CPUs, unlike on a
cluster.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiperf.clock import SystemClock
from aiperf.records.bodies import PhaseBegan, RunReleased
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.paths import RunPaths
from slurm.local_cluster import LocalCluster
from tests.support.hosts.sshd import start_hosts


def first_steps(output: Path) -> tuple[int | None, dict[int, int]]:
    """The time of the release, and of the first training step of each replica; UTC milliseconds."""
    if not (output / "history").exists():
        return None, {}
    records = HistoryReader(RunPaths(output)).read_new().records
    released = next((record.time_ms for record in records if isinstance(record.body, RunReleased)), None)
    trained: dict[int, int] = {}
    for record in sorted(records, key=lambda record: record.time_ms):
        if isinstance(record.body, PhaseBegan) and record.body.phase == "train":
            trained.setdefault(record.body.replica, record.time_ms)
    return released, trained


def measure(replicas: int, words: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Measure one run, which is interrupted when all replicas train."""
    with tempfile.TemporaryDirectory() as name:
        output = Path(name) / "run"
        command = [sys.executable, "-m", "aiperf", "run", "--dataset", "digits", "--replicas", str(replicas)]
        settings = ["training.trainer=simulated", "simulated.epoch_seconds=60", "run.stop_grace=60"]
        overrides = [word for setting in settings for word in ("--set", setting)]
        began_ms = time.time_ns() // 1_000_000
        quiet = subprocess.DEVNULL
        with subprocess.Popen(
            [*command, *overrides, *words, "--duration", "1h", "--output", str(output)],
            env=environment,
            stdout=quiet,
            stderr=quiet,
        ) as run:
            released, trained = first_steps(output)
            while len(trained) < replicas and run.poll() is None:
                time.sleep(0.5)
                released, trained = first_steps(output)
            run.send_signal(signal.SIGINT)
        assert released is not None, "the run did not start"
        return {"released_s": (released - began_ms) / 1000, "trains_s": (max(trained.values()) - began_ms) / 1000}


def main() -> int:
    """Measure every launcher and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", default="1,4,50", help="numbers of replicas (default: %(default)s)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        cluster = LocalCluster(Path(name) / "cluster", SystemClock())
        cluster.start(4, 16)
        hosts = start_hosts(Path(name) / "hosts", 4)
        slurm = {**os.environ, **cluster.environment}
        try:
            for replicas in map(int, arguments.replicas.split(",")):
                found[f"local {replicas}"] = measure(replicas, [], dict(os.environ))
                shared = ["--set", f"replica.per_node={-(-replicas // 4)}"]
                found[f"slurm {replicas}"] = measure(replicas, ["--launcher", "slurm", *shared], slurm)
                words = ["--launcher", "ssh", *hosts.overrides(), *shared]
                found[f"ssh {replicas}"] = measure(replicas, words, dict(os.environ))
        finally:
            cluster.stop()
            hosts.stop()
    if arguments.format == "json":
        print(json.dumps(found, indent=2))
    else:
        for label, times in found.items():
            print(f"{label:12} released {times['released_s']:6.1f} s   all train {times['trains_s']:6.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
