"""A report of a large run (512 replicas, 12 hours, 20,000 trials), and a ranking of 200 runs.

python -m benchmarks.report_at_scale [--replicas N] [--trials N] [--reports N] [--format json]

The records have the shape of a real run's: phases, progress every 10 s, 20 epochs a trial, one
accelerator a replica, telemetry every 30 s. Their accuracies are random. Prints seconds of wall
time and the memory of the largest process.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiperf.clock import format_utc
from aiperf.config.settings import load_config
from aiperf.history.records import (
    AnyBody,
    EpochCompleted,
    JobIssued,
    PhaseBegan,
    ProgressMade,
    Record,
    ReplicaReady,
    RunEnded,
    RunReleased,
    TrialEnded,
    TrialStarted,
    encode_record,
)
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from replica.search.demo.architectures import random_history
from search_space.limits import growth_limits
from search_space.resnet import resnet

T0_MS = 1_700_000_000_000
HOURS = 12
EPOCHS = 20
PROGRESS_S = 10
TELEMETRY_S = 30
IMAGES = (1_281_167, 50_000)


class Writer:
    """The history of one writer, written without a sync for each record."""

    def __init__(self, paths: RunPaths, name: str) -> None:
        self._stream = paths.history_file(name).open("xb")
        self._name = name
        self._count = 0

    def write(self, t_s: float, body: AnyBody) -> None:
        """A record `t_s` seconds after the start."""
        time_ms = T0_MS + round(t_s * 1000)
        self._stream.write(encode_record(Record(self._name, self._count, time_ms, time_ms, body)))
        self._count += 1

    def close(self) -> None:
        """Finish the file."""
        self._stream.close()


def generate(root: Path, replicas: int, trials: int, architectures: int) -> RunPaths:
    """Make a whole run directory; the number of trials decides the length of each."""
    paths = RunPaths(root)
    paths.create()
    config = load_config(overrides={"run.replicas": replicas, "run.duration": HOURS * 3600})
    write_manifest(paths, config)
    rng = random.Random(7)
    initial = resnet(50, 224, 1000)
    pool = random_history(initial, growth_limits(initial, 4.0, None, 64, 4), architectures, rng)
    store = ArchitectureStore(paths)
    names = []
    for architecture in [initial, *pool]:
        names.append(architecture.hash)
        if not paths.architecture(architecture.hash).exists():
            store.save(architecture)
    primary = Writer(paths, "primary-1")
    for replica in range(replicas):
        writer = f"replica-{replica:04d}-1"
        primary.write(-5, ReplicaReady(replica=replica, writer=writer, accelerators=1, clock_offset_ms=0))
    primary.write(0, RunReleased(duration_ms=HOURS * 3_600_000, ready=tuple(range(replicas))))
    each = trials / replicas
    for replica in range(replicas):
        own = range(round(replica * each) + 1, round((replica + 1) * each) + 1)
        for number in own:
            primary.write(0.1, JobIssued(trial=number, replica=replica, round=1, seed=1))
        _replica(paths, replica, own, names, rng)
        _telemetry(paths, replica, rng)
    end_ms = T0_MS + HOURS * 3_600_000
    primary.write(HOURS * 3600, RunEnded(reason="deadline", end_ms=end_ms))
    primary.close()
    return paths


def _replica(paths: RunPaths, replica: int, trials: range, names: list[str], rng: random.Random) -> None:
    writer = Writer(paths, f"replica-{replica:04d}-1")
    span_s = HOURS * 3600 / len(trials)
    for place, trial in enumerate(trials):
        begin_s = place * span_s + 1
        name = names[0] if trial == 1 else names[trial % len(names)]
        writer.write(begin_s, PhaseBegan(replica=replica, trial=trial, phase="search"))
        writer.write(
            begin_s + 1,
            TrialStarted(
                trial=trial, replica=replica, round=place + 1, architecture=name, parent=names[0], epochs=EPOCHS,
                hyperparameters={"batch_size": 448, "kernel_size": rng.choice([2, 3, 4, 5])},
                point=place % 3, precision="mixed_bfloat16",
            ),
        )  # fmt: skip
        _epochs(writer, replica, trial, begin_s + 2, (span_s - 4) / EPOCHS, rng)
        writer.write(begin_s + span_s - 2, TrialEnded(trial=trial, reason="completed"))
        writer.write(begin_s + span_s - 2, PhaseBegan(replica=replica, trial=None, phase="idle"))
    writer.close()


def _epochs(writer: Writer, replica: int, trial: int, begin_s: float, epoch_s: float, rng: random.Random) -> None:
    best = rng.uniform(0.5, 0.78)
    for epoch in range(1, EPOCHS + 1):
        t_s = begin_s + (epoch - 1) * epoch_s
        writer.write(t_s, PhaseBegan(replica=replica, trial=trial, phase="train"))
        steps = int(epoch_s / PROGRESS_S)
        for step in range(1, steps):
            images = IMAGES[0] * step // steps
            progress = ProgressMade(trial=trial, epoch=epoch, images_trained=images, images_evaluated=0)
            writer.write(t_s + step * PROGRESS_S, progress)
        writer.write(t_s + 0.95 * epoch_s, PhaseBegan(replica=replica, trial=trial, phase="evaluate"))
        correct = round(IMAGES[1] * best * (1 - 0.6**epoch))
        writer.write(
            t_s + epoch_s - 0.1,
            EpochCompleted(
                trial=trial, epoch=epoch, images_trained=IMAGES[0], images_evaluated=IMAGES[1], correct=correct,
                loss=2.0, validation_loss=2.1, learning_rate=0.1,
            ),
        )  # fmt: skip


def _telemetry(paths: RunPaths, replica: int, rng: random.Random) -> None:
    host = f"node-{replica:04d}"
    file = paths.telemetry_file(f"replica-{replica:04d}-1-{host}")
    file.parent.mkdir(exist_ok=True)
    header = {"version": 1, "host": host, "interval_s": TELEMETRY_S, "writer": f"replica-{replica:04d}-1"}
    lines = [json.dumps(header)]
    for t_s in range(0, HOURS * 3600, TELEMETRY_S):
        gpu = {"DCGM_FI_DEV_GPU_UTIL": rng.randint(90, 100), "DCGM_FI_DEV_FB_USED": 70000.0,
               "DCGM_FI_DEV_FB_TOTAL": 81559.0, "DCGM_FI_DEV_POWER_USAGE": rng.uniform(500, 700)}  # fmt: skip
        sample = {"time": format_utc(T0_MS + t_s * 1000), "accelerators": [gpu], "cpu_percent": 35.0,
                  "memory_used_bytes": 2**37, "memory_total_bytes": 2**40}  # fmt: skip
        lines.append(json.dumps(sample))
    file.write_text("\n".join(lines) + "\n")


def timed(*command: str | Path) -> tuple[float, float]:
    """Wall seconds of a command, and the largest memory of one of its processes in MB."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "aiperf", *map(str, command)], capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr.decode())
    peak_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return time.perf_counter() - began, peak_kb / 1000


def main() -> None:
    """Generate, time, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=512)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--architectures", type=int, default=8_000)
    parser.add_argument("--reports", type=int, default=200)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        paths = generate(root / "large", arguments.replicas, arguments.trials, arguments.architectures)
        report_s, report_mb = timed("report", paths.root)
        small = generate(root / "small", 8, 320, 20)
        timed("report", small.root)
        copies = []
        for number in range(arguments.reports):
            copies.append(root / f"report-{number:03d}.json")
            shutil.copy(small.report_json, copies[-1])
        rank_s, _ = timed("rank", *copies, "--html", root / "ranking.html")
    result = {"report_s": report_s, "report_peak_mb": report_mb, "rank_s": rank_s}
    if arguments.format == "json":
        print(json.dumps(result, indent=2))
    else:
        for key, value in result.items():
            print(f"{key:<16} {value:10.1f}")


if __name__ == "__main__":
    main()
