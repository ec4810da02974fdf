"""The files of a made-up run: history list, digest, telemetry, and the description of its nodes."""

import json
import random
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aiperf.clock import format_utc
from aiperf.config.settings import load_config
from aiperf.records.bodies import (
    AnyBody,
    EpochCompleted,
    EpochWitnessed,
    JobIssued,
    PhaseBegan,
    ReplicaReady,
    RunEnded,
    RunReleased,
    TrialBuilt,
    TrialClosed,
    TrialEnded,
    TrialStarted,
)
from aiperf.records.chain import first_link, hash_of
from aiperf.records.cursor import Cursor
from aiperf.records.digest.compiled import over
from aiperf.records.digest.entries import Began, Entry, Opened, cursor_at, encode_entry, next_hash
from aiperf.records.digest.writer import DigestWriter
from aiperf.records.record import Record, encode_record
from aiperf.rules.prediction import predicted_accuracy
from aiperf.rules.rounds import plan_round
from aiperf.rules.schedule import Assignment
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.checksums import sealed
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.source_code import source_hash
from benchmarks.scale.made.plan import MAX_EPOCHS, PRECISION, Search, Slot, Trial, schedule

T0_MS = 1_700_000_000_000
HOURS = 12
PROGRESS_S = 10
TELEMETRY_S = 30
IMAGES = (1_281_167, 50_000)
PRIMARY = "primary-1"
DEVICE = "NVIDIA B200"
"""One a replica: grown networks at this pace need a fast one."""


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
        return self._append(encode_record(Record(self.name, self._count, time_ms, time_ms, body, self._link)))

    def write_progress(self, t_s: float, trial: int, epoch: int, images: int) -> None:
        """A report of progress, which is most of a file: as `write`, without a model of it."""
        time_ms = T0_MS + round(t_s * 1000)
        head = (
            f'{{"version":2,"writer":"{self.name}","sequence":{self._count},"time":"{format_utc(time_ms)}",'
            f'"monotonic_ms":{time_ms},"data":{{"type":"progress","trial":{trial},"epoch":{epoch},'
            f'"images_trained":{images},"images_evaluated":0}},"previous":"{self._link}"'
        ).encode()
        self._append(head + b',"crc32":"%08x"}\n' % zlib.crc32(head))

    def _append(self, line: bytes) -> tuple[int, str]:
        self._stream.write(line)
        self._link = hash_of(line[:-1])
        self._count += 1
        return self._count - 1, self._link

    def close(self) -> None:
        """Finish the file."""
        self._stream.close()


def generate(root: Path, replicas: int, trials: int, architectures: int) -> RunPaths:
    """Make a whole run directory; the number of trials decides the length of each.

    Each round's own trial has an architecture of its own, also beyond `architectures`.
    """
    paths = RunPaths(root)
    paths.create()
    config = load_config(
        overrides={
            "run.replicas": replicas,
            "run.duration": HOURS * 3600,
            "training.max_epochs": MAX_EPOCHS,
            "training.precision": PRECISION,
        }
    )
    write_manifest(paths, config)
    _describe_nodes(paths, replicas)
    rng = random.Random(7)
    search = Search(ArchitectureStore(paths, 1), config, architectures, rng)
    slots = schedule(config, replicas, trials, rng)
    planned = [search.trial(number, slot) for number, slot in enumerate(slots, start=1)]
    courses = {trial.trial: Course(trial, rng) for trial in planned}
    cursors = _digest(paths, planned, courses)
    heard: Heard = []
    for replica in range(replicas):
        writer = Writer(paths, _writer(replica))
        for trial in (trial for trial in planned if trial.slot.replica == replica):
            seed = _assignment(trial.slot).seed(config, replica)
            heard += _trial(writer, courses[trial.trial], cursors[trial.trial], seed)
        writer.close()
        _telemetry(paths, replica, rng)
    _primary(paths, replicas, heard)
    return paths


def _writer(replica: int) -> str:
    return f"replica-{replica:04d}-1"


def _assignment(slot: Slot) -> Assignment:
    return Assignment(slot.assignment.round, slot.assignment.point)


class Course:
    """The accuracies of a trial, and its predicted one."""

    def __init__(self, trial: Trial, rng: random.Random) -> None:
        self.trial = trial
        best = rng.uniform(0.5, 0.78)
        self.correct = [round(IMAGES[1] * best * (1 - 0.6**epoch)) for epoch in range(1, trial.slot.epochs + 1)]
        self.qualities = {epoch: value / IMAGES[1] for epoch, value in enumerate(self.correct, start=1)}
        predicts = plan_round(trial.slot.assignment.round, MAX_EPOCHS).predicts
        self.predicted = predicted_accuracy(self.qualities, MAX_EPOCHS) if predicts else None

    def entries(self) -> Iterator[tuple[float, Entry]]:
        """What the digest says of it, and when."""
        trial, slot = self.trial, self.trial.slot
        yield (
            slot.begin_s + 1,
            Began(
                trial=trial.trial,
                replica=slot.replica,
                round=slot.assignment.round,
                architecture=trial.architecture,
                parent=trial.parent,
                morphs=trial.morphs,
                point=slot.assignment.point,
                base=trial.base,
                hyperparameters=trial.hyperparameters,
            ),
        )
        yield slot.end_s + 0.1, over(trial.trial, "completed", "", self.predicted, self.qualities)


def _digest(paths: RunPaths, planned: Iterable[Trial], courses: dict[int, Course]) -> dict[int, Cursor]:
    """Write the digest; the cursor that each trial was planned from, by trial."""
    due: list[tuple[float, Entry | int]] = [item for course in courses.values() for item in course.entries()]
    due += [(trial.slot.begin_s, trial.trial) for trial in planned]
    entries: list[Entry] = []
    number, link, cursors = 0, first_link(paths), dict[int, Cursor]()
    link = next_hash(link, encode_entry(Opened(primary=PRIMARY))[:-1])
    for _, item in sorted(due, key=lambda pair: pair[0]):
        if isinstance(item, int):
            cursors[item] = cursor_at(PRIMARY, number, link)
        else:
            entries.append(item)
            number, link = number + 1, next_hash(link, encode_entry(item)[:-1])
    DigestWriter(paths, PRIMARY, entries).close(0)
    return cursors


@dataclass(frozen=True, slots=True)
class Said:
    """A record of the primary: seconds after the release, and its body."""

    t_s: float
    body: AnyBody


Heard = list[Said]


def _primary(paths: RunPaths, replicas: int, heard: Heard) -> None:
    primary = Writer(paths, PRIMARY)
    for replica in range(replicas):
        primary.write(-5, ReplicaReady(replica=replica, writer=_writer(replica), accelerators=1, clock_offset_ms=0))
    primary.write(0, RunReleased(duration_ms=HOURS * 3_600_000, ready=tuple(range(replicas))))
    for said in sorted(heard, key=lambda item: item.t_s):
        primary.write(said.t_s, said.body)
    primary.write(HOURS * 3600, RunEnded(reason="deadline", end_ms=T0_MS + HOURS * 3_600_000))
    primary.close()


def _trial(writer: Writer, course: Course, cursor: Cursor, seed: int) -> Heard:
    """Write the records of a trial; what the primary records of it."""
    trial, slot = course.trial, course.trial.slot
    number, replica, round_, point = trial.trial, slot.replica, slot.assignment.round, slot.assignment.point
    job = JobIssued(trial=number, replica=replica, round=round_, seed=seed, point=point, base=trial.base, claim=1)
    writer.write(slot.begin_s, PhaseBegan(replica=replica, trial=number, phase="search"))
    writer.write(
        slot.begin_s + 1,
        TrialStarted(
            trial=number,
            replica=replica,
            round=round_,
            architecture=trial.architecture,
            parent=trial.parent,
            morphs=trial.morphs,
            epochs=slot.epochs,
            trainer="keras",
            input="dataset",
            dataset="imagenet",
            cursor=cursor.text,
            cursor_hash=cursor.hash,
            hyperparameters=trial.hyperparameters,
            point=point,
            base=trial.base,
            precision=PRECISION,
        ),
    )
    built = TrialBuilt(
        trial=number,
        architecture=trial.architecture,
        compute={"bfloat16": 54},
        devices=(DEVICE,),
        framework="tensorflow 2.20.0, keras 3.12.0",
        source_hash=source_hash(),
        environment={},
    )
    writer.write(slot.begin_s + 1.5, built)
    witnesses = list(_epochs(writer, course))
    writer.write(slot.end_s, TrialEnded(trial=number, reason="completed", predicted_accuracy=course.predicted))
    sequence, digest = writer.write(slot.end_s, PhaseBegan(replica=replica, trial=None, phase="idle"))
    closed = TrialClosed(trial=number, how="completed", writer=writer.name, sequence=sequence, digest=digest)
    return [Said(slot.begin_s - 0.5, job), *witnesses, Said(slot.end_s + 0.1, closed)]


def _epochs(writer: Writer, course: Course) -> Iterator[Said]:
    slot, trial = course.trial.slot, course.trial.trial
    for epoch, correct in enumerate(course.correct, start=1):
        t_s = slot.begin_s + 2 + (epoch - 1) * slot.epoch_s
        writer.write(t_s, PhaseBegan(replica=slot.replica, trial=trial, phase="train"))
        steps = int(slot.epoch_s / PROGRESS_S)
        for step in range(1, steps):
            images = IMAGES[0] * step // steps
            writer.write_progress(t_s + step * PROGRESS_S, trial, epoch, images)
        writer.write(t_s + 0.95 * slot.epoch_s, PhaseBegan(replica=slot.replica, trial=trial, phase="evaluate"))
        body = EpochCompleted(
            trial=trial,
            epoch=epoch,
            images_trained=IMAGES[0],
            images_evaluated=IMAGES[1],
            correct=correct,
            loss=2.0,
            validation_loss=2.1,
            learning_rate=0.1 * (1 - (epoch - 1) / MAX_EPOCHS),
        )
        sequence, digest = writer.write(t_s + slot.epoch_s - 0.1, body)
        witness = EpochWitnessed(trial=trial, epoch=epoch, writer=writer.name, sequence=sequence, digest=digest)
        yield Said(t_s + slot.epoch_s - 0.05, witness)


def _host(replica: int) -> str:
    return f"node-{replica:04d}"


def _describe_nodes(paths: RunPaths, replicas: int) -> None:
    facts = {
        "cpu_model": "AMD EPYC",
        "cpu_count": 64,
        "memory_bytes": 2**40,
        "accelerators": 1,
        "accelerator": DEVICE,
        "accelerator_memory_bytes": 180 * 10**9,
        "accelerator_driver": "570.00",
    }
    nodes = {str(replica): {"host": _host(replica), **facts} for replica in range(replicas)}
    paths.system.write_bytes(sealed(nodes) + b"\n")


def _telemetry(paths: RunPaths, replica: int, rng: random.Random) -> None:
    writer, host = _writer(replica), _host(replica)
    file = paths.telemetry_file(f"{writer}-{host}")
    file.parent.mkdir(exist_ok=True)
    header = {"version": 1, "host": host, "interval_s": TELEMETRY_S, "writer": writer}
    lines = [json.dumps(header)]
    for t_s in range(0, HOURS * 3600, TELEMETRY_S):
        gpu = {
            "DCGM_FI_DEV_GPU_UTIL": rng.randint(90, 100),
            "DCGM_FI_DEV_FB_USED": 140000.0,
            "DCGM_FI_DEV_FB_TOTAL": 183359.0,
            "DCGM_FI_DEV_POWER_USAGE": rng.uniform(700, 900),
        }
        sample = {
            "time": format_utc(T0_MS + t_s * 1000),
            "accelerators": [gpu],
            "cpu_percent": 35.0,
            "memory_used_bytes": 2**37,
            "memory_total_bytes": 2**40,
        }
        lines.append(json.dumps(sample))
    file.write_text("\n".join(lines) + "\n")
