"""A replica's wait between trials, and the memory on the primary's node, natively and under NNI.

python -m benchmarks.managers [--rounds 3] [--format json]

With the simulated trainer and two replicas; the managers take turns. Medians over all trials of all
rounds, and the largest memory that was seen.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from aiperf.records.bodies import PhaseBegan, TrialEnded
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.paths import RunPaths
from tests.support.hand_made import free_port
from tests.support.processes import ask, command, family

MIB = 2**20
DURATION_S = 60
LOOK_INTERVAL_S = 3.0
EPOCH_S = 1.5
"""With four epochs a training takes longer than NNI needs to start the process that follows it."""

PARTS = {"manager": "nni_node/main.js", "tuner": "--exp_params", "trial": "primary.nni.trial"}
"""NNI's processes, by a word of their command lines."""


def gaps(output: Path) -> list[float]:
    """Seconds from the end of a training to the first step of the next one on the same replica."""
    records = HistoryReader(RunPaths(output)).read_new().records
    result = []
    for writer in {record.writer for record in records if record.writer.startswith("replica")}:
        ended_ms = None
        for record in (record for record in records if record.writer == writer):
            if isinstance(record.body, TrialEnded):
                ended_ms = record.time_ms
            elif isinstance(record.body, PhaseBegan) and record.body.phase == "train" and ended_ms is not None:
                result.append((record.time_ms - ended_ms) / 1000)
                ended_ms = None
    return result


def spent(run: int) -> list[tuple[str, float]]:
    """Kind and memory (MiB) of each of NNI's processes below the process of a run."""
    found = []
    for process in family(run)[1:]:
        words, memory = command(process), ask(process.memory_full_info, None)
        # The command line of a shell has all words of the process that it starts.
        if memory is not None and not words.startswith("/bin/sh"):
            found += [(part, memory.uss / MIB) for part, word in PARTS.items() if word in words]
    return found


def measure(manager: str) -> tuple[list[float], list[tuple[str, float]]]:
    """The gaps between the trials of one run, and the memory of NNI's processes in it."""
    memory: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        output, home = Path(name) / "run", Path(name) / "home"
        home.mkdir()
        settings = ["training.trainer=simulated", f"simulated.epoch_seconds={EPOCH_S}", "training.max_epochs=4"]
        words = ["--dataset", "digits", "--replicas", "2", "--manager", manager, "--duration", f"{DURATION_S}s"]
        overrides = [word for setting in (*settings, f"nni.port={free_port()}") for word in ("--set", setting)]
        with subprocess.Popen(
            [sys.executable, "-m", "aiperf", "run", *words, *overrides, "--output", str(output)],
            env={**os.environ, "HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as run:
            while run.poll() is None:
                time.sleep(LOOK_INTERVAL_S)
                memory += spent(run.pid)
        return gaps(output), memory


def main() -> int:
    """Measure both managers and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each manager (default: %(default)s)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    waited: dict[str, list[float]] = {"native": [], "nni": []}
    memory: list[tuple[str, float]] = []
    for _ in range(arguments.rounds):
        for manager, found in waited.items():
            new, used = measure(manager)
            found.extend(new)
            memory += used
    result: dict[str, Any] = {f"gap_{manager}_s": round(median(found), 2) for manager, found in waited.items()}
    result |= {f"{manager}_gaps": len(found) for manager, found in waited.items()}
    result |= {f"nni_{part}_mib": round(max(used for kind, used in memory if kind == part)) for part in PARTS}
    if arguments.format == "json":
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name:20} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
