"""A report of a large run (512 replicas, 12 hours, 20,000 trials), and a ranking of 200 runs.

python -m benchmarks.report_at_scale [--replicas N] [--trials N] [--reports N] [--checks N]
    [--format json]

The records have the shape of a real run's: a chain, witnesses, closings, cursors, phases, progress
every 10 s, 20 epochs a trial, architectures made from a parent by morphs, one accelerator a
replica, telemetry every 30 s. Their accuracies are random, and all trials are of rounds that
measure, so some damages remain. Prints seconds of wall time and the memory of the largest process.
With `--checks`, also CPU seconds of reading the run with and without the checks of its integrity,
the median of N in turn.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiperf.clock import format_utc
from aiperf.config.settings import load_config
from aiperf.history.bodies import (
    AnyBody,
    EpochCompleted,
    EpochWitnessed,
    JobIssued,
    PhaseBegan,
    ProgressMade,
    ReplicaReady,
    RunEnded,
    RunReleased,
    TrialClosed,
    TrialEnded,
    TrialStarted,
)
from aiperf.history.chain import first_link, hash_of
from aiperf.history.cursor import Cursor
from aiperf.history.records import Record, encode_record
from aiperf.network.architecture import Architecture
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from analysis.reading import history
from analysis.reading.integrity.inspection import Inspection
from analysis.reading.integrity.lines import LineFacts
from analysis.reading.integrity.view import WriterRecords, summary_of
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from search_space.limits import Limits, growth_limits
from search_space.morph_json import morph_data
from search_space.resnet import resnet
from search_space.sampling import random_morph

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
        self.name = name
        self._count = 0
        self._link = first_link(paths)

    def write(self, t_s: float, body: AnyBody) -> tuple[int, str]:
        """A record `t_s` seconds after the start; its number and hash."""
        time_ms = T0_MS + round(t_s * 1000)
        line = encode_record(Record(self.name, self._count, time_ms, time_ms, body, self._link))
        self._stream.write(line)
        self._link = hash_of(line[:-1])
        self._count += 1
        return self._count - 1, self._link

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
    made = []
    for architecture, how in _children(initial, growth_limits(initial, 4.0, None, 64, 4), architectures, rng):
        made.append(how)
        if not paths.architecture(how.name).exists():
            ArchitectureStore(paths).save(architecture)
    primary = Writer(paths, "primary-1")
    for replica in range(replicas):
        writer = f"replica-{replica:04d}-1"
        primary.write(-5, ReplicaReady(replica=replica, writer=writer, accelerators=1, clock_offset_ms=0))
    primary.write(0, RunReleased(duration_ms=HOURS * 3_600_000, ready=tuple(range(replicas))))
    each = trials / replicas
    heard: list[tuple[float, AnyBody]] = []
    for replica in range(replicas):
        own = range(round(replica * each) + 1, round((replica + 1) * each) + 1)
        heard += _replica(paths, replica, own, made, rng)
        _telemetry(paths, replica, rng)
    end_ms = T0_MS + HOURS * 3_600_000
    heard.append((HOURS * 3600, RunEnded(reason="deadline", end_ms=end_ms)))
    for t_s, body in sorted(heard, key=lambda item: item[0]):
        primary.write(t_s, body)
    primary.close()
    return paths


@dataclass(frozen=True, slots=True)
class Made:
    """An architecture, and the way in which it was made."""

    name: str
    parent: str | None = None
    morphs: tuple[dict[str, str | int], ...] = ()


def _children(
    initial: Architecture, limits: Limits, count: int, rng: random.Random
) -> Iterator[tuple[Architecture, Made]]:
    """Architectures one to three morphs away from one before."""
    known = [initial]
    yield initial, Made(initial.hash)
    while len(known) <= count:
        parent = rng.choice(known)
        child, morphs = parent, list[dict[str, str | int]]()
        for _ in range(rng.randint(1, 3)):
            morph, child = random_morph(child, rng)
            morphs.append(morph_data(morph))
        if limits.refusal(child) is None:
            known.append(child)
            yield child, Made(child.hash, parent.hash, tuple(morphs))


Heard = list[tuple[float, AnyBody]]
"""The primary's records, with their times in seconds."""


def _replica(paths: RunPaths, replica: int, trials: range, made: list[Made], rng: random.Random) -> Heard:
    writer = Writer(paths, f"replica-{replica:04d}-1")
    span_s = HOURS * 3600 / len(trials)
    heard: Heard = []
    head = None
    for place, trial in enumerate(trials):
        begin_s = place * span_s + 1
        how = made[0] if trial == 1 else made[trial % len(made)]
        heard.append((begin_s - 0.5, JobIssued(trial=trial, replica=replica, round=place + 1, seed=1)))
        # As large as a cursor of all writers, but only its own place is known here.
        cursor = Cursor({} if head is None else {writer.name: head})
        writer.write(begin_s, PhaseBegan(replica=replica, trial=trial, phase="search"))
        writer.write(
            begin_s + 1,
            TrialStarted(
                trial=trial, replica=replica, round=place + 1, architecture=how.name, parent=how.parent,
                morphs=how.morphs, epochs=EPOCHS, trainer="keras", input="dataset", dataset="imagenet",
                cursor=cursor.text, cursor_hash=cursor.hash,
                hyperparameters={"batch_size": 448, "kernel_size": rng.choice([2, 3, 4, 5])},
                point=place % 3, precision="mixed_bfloat16",
            ),
        )  # fmt: skip
        heard += _epochs(writer, replica, trial, begin_s + 2, (span_s - 4) / EPOCHS, rng)
        writer.write(begin_s + span_s - 2, TrialEnded(trial=trial, reason="completed"))
        head = writer.write(begin_s + span_s - 2, PhaseBegan(replica=replica, trial=None, phase="idle"))
        closed = TrialClosed(trial=trial, how="completed", writer=writer.name, sequence=head[0], digest=head[1])
        heard.append((begin_s + span_s - 1.9, closed))
    writer.close()
    return heard


def _epochs(writer: Writer, replica: int, trial: int, begin_s: float, epoch_s: float, rng: random.Random) -> Heard:
    heard: Heard = []
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
        sequence, digest = writer.write(
            t_s + epoch_s - 0.1,
            EpochCompleted(
                trial=trial, epoch=epoch, images_trained=IMAGES[0], images_evaluated=IMAGES[1], correct=correct,
                loss=2.0, validation_loss=2.1, learning_rate=0.1 * (1 - (epoch - 1) / 60),
            ),
        )  # fmt: skip
        witness = EpochWitnessed(trial=trial, epoch=epoch, writer=writer.name, sequence=sequence, digest=digest)
        heard.append((t_s + epoch_s, witness))
    return heard


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


def checked(root: Path, rounds: int) -> dict[str, float]:
    """CPU seconds of reading a run with and without its checks, in turn; medians."""
    found: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(rounds):
        for name, seconds in found.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", _READ, str(root), name], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {f"read_{name}_checks_cpu_s": sorted(seconds)[len(seconds) // 2] for name, seconds in found.items()}


_READ = """
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from aiperf.run_directory.paths import open_run
from benchmarks import report_at_scale
report_at_scale.read(open_run(Path(sys.argv[1])), sys.argv[2] == "with")
"""


def read(paths: RunPaths, checks: bool) -> None:
    """Read a run and build its report, with or without the checks."""
    if not checks:
        # Private to this benchmark: no option of the program leaves the checks out.
        vars(history)["select_lines"] = _select_unchecked
        setattr(Inspection, "add", _note)  # noqa: B010
        setattr(Inspection, "damages", lambda *_: ())  # noqa: B010
    build_report(read_run(paths))


_select = history.select_lines


def _select_unchecked(file: Path, thinning: history.ProgressThinning | None, *_: object) -> history.Lines:
    """Select lines without looking at them; in a process of its own, which knows no other way."""
    vars(history)["check_lines"] = lambda *_: LineFacts()
    return _select(file, thinning)


def _note(inspection: Inspection, read: WriterRecords) -> None:
    """Keep what the reading of other files needs."""
    if read.writer.startswith("primary-"):
        inspection.view.primary.files.append(summary_of(read))


def main() -> None:
    """Generate, time, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=512)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--architectures", type=int, default=8_000)
    parser.add_argument("--reports", type=int, default=200)
    parser.add_argument("--checks", type=int, default=0)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        paths = generate(root / "large", arguments.replicas, arguments.trials, arguments.architectures)
        report_s, report_mb = timed("report", paths.root)
        more = checked(paths.root, arguments.checks) if arguments.checks else {}
        small = generate(root / "small", 8, 320, 20)
        timed("report", small.root)
        copies = []
        for number in range(arguments.reports):
            copies.append(root / f"report-{number:03d}.json")
            shutil.copy(small.report_json, copies[-1])
        rank_s, _ = timed("rank", *copies, "--html", root / "ranking.html")
    result = {"report_s": report_s, "report_peak_mb": report_mb, "rank_s": rank_s, **more}
    if arguments.format == "json":
        print(json.dumps(result, indent=2))
    else:
        for key, value in result.items():
            print(f"{key:<24} {value:10.1f}")


if __name__ == "__main__":
    main()
