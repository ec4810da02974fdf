"""Forgeries of what was trained: trainers, epochs, trials, architectures (rows 1 to 8)."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from msgspec.structs import replace

from aiperf.network.architecture import Architecture
from aiperf.records.bodies import (
    EpochCompleted,
    JobIssued,
    ProgressMade,
    ReplicaReady,
    RunEnded,
    RunReleased,
    TrialBuilt,
    TrialClosed,
    TrialEnded,
    TrialFailed,
    TrialStarted,
)
from aiperf.records.record import Record, decode_record, encode_record
from aiperf.rules.schedule import Assignment
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import RunPaths
from search_space.morphisms import Deepen, Morph, Widen, deepen_sites, morph_data
from search_space.streams import streams
from tests.forgeries.table import (
    Forge,
    Forgery,
    configure,
    configured,
    invented,
    lines_of,
    more_epochs,
    naively,
    same,
    strongly,
)
from tests.support.forging import Change, rewrite
from tests.support.forging.changes import both, moved, of

FIRST, SECOND, PRIMARY, CLONE = "replica-0000-1", "replica-0001-1", "primary-1", "replica-0002-1"
AN_EPOCH = (EpochCompleted, 3, 7)
OF_FIRST, OF_SECOND = 7, 8
"""The trials that the end of the run stops, of the two replicas."""
REAL: dict[str, Any] = {"training__trainer": "keras", "run__dataset": "imagenet"}
STARTS_REAL = of(TrialStarted, trainer="keras", dataset="imagenet")


def built_for_all(record: Record) -> Sequence[Record]:
    """A trial_built after each start, as a training would have."""
    body = record.body
    if not isinstance(body, TrialStarted):
        return [record]
    built = TrialBuilt(
        trial=body.trial,
        architecture=body.architecture,
        compute={"float32": 54},
        devices=("cpu",),
        framework="tensorflow 2.20.0",
        source_hash="0" * 64,
        environment={},
    )
    return [record, replace(record, body=built)]


PASSED_OFF = [
    Forgery(1, "simulated is called keras", configured(chained=False, training__trainer="keras"),
            (f"chain {PRIMARY}", f"facts {FIRST}", "rule evidence"), "simulated"),
    Forgery(1, "simulated is called keras, chained", configured(training__trainer="keras"),
            (f"facts {FIRST}", f"facts {SECOND}"), "simulated"),
    Forgery(1, "simulated is called keras by every start",
            configured(of(TrialStarted, trainer="keras"), training__trainer="keras"),
            ("rule evidence", "rule plausible", "rule dataset"), "simulated"),
    Forgery(1, "digits are called imagenet", configured(chained=False, **REAL),
            (f"chain {PRIMARY}", f"facts {FIRST}", f"bounds {FIRST}"), "simulated"),
    Forgery(1, "digits are called imagenet by every start", configured(both(STARTS_REAL, built_for_all), **REAL),
            (f"bounds {FIRST}", f"architecture {FIRST}", "rule evidence"), "simulated"),
    Forgery(1, "a longer duration", configured(chained=False, run__duration=43200.0),
            (f"chain {PRIMARY}", f"time {PRIMARY}")),
    Forgery(1, "a longer duration, released for it",
            configured(of(RunReleased, duration_ms=43_200_000), run__duration=43200.0), (f"time {PRIMARY}",)),
    Forgery(1, "another first round of tuning", configured(search__hpo_first_round=2), (f"conflict {PRIMARY}",)),
    Forgery(1, "random search is called bayesian",
            configured(search__strategy="bayesian"), ("replay architecture",), "simulated"),
]  # fmt: skip


def huge_progress(record: Record) -> Record:
    """The reports of the last, open epoch of a run with far more images."""
    body = record.body
    if isinstance(body, ProgressMade) and body.trial == OF_FIRST and record.sequence > 850:
        return replace(record, body=replace(body, images_trained=10**12))
    return record


def with_rows(change: Any) -> Forge:
    """Change an epoch and invent rows that fit its steps and its loss."""

    def forge(paths: RunPaths) -> None:
        def changed(record: Record) -> Record:
            body = record.body
            if not isinstance(body, EpochCompleted) or (body.trial, body.epoch) != AN_EPOCH[1:]:
                return record
            forged = replace(body, **change)
            old = paths.evidence(body.trial).read_bytes()
            paths.evidence(body.trial).write_bytes(b"")
            made = invented(paths, forged, math.ceil(abs(forged.images_trained) / 3584))
            kept = [old[start : start + 16 * 358] for start in range(0, len(old), 16 * 358)]
            kept[body.epoch - 1] = paths.evidence(body.trial).read_bytes()
            paths.evidence(body.trial).write_bytes(b"".join(kept))
            return replace(record, body=made)

        rewrite(paths, changed)

    return forge


EPOCHS = [
    Forgery(
        2,
        "images multiplied",
        naively(of(*AN_EPOCH, images_trained=12_811_670)),
        (f"bounds {FIRST}", f"chain {FIRST}", f"witness {FIRST}"),
    ),
    Forgery(2, "images multiplied, with rows", with_rows({"images_trained": 12_811_670}), (f"bounds {FIRST}",)),
    Forgery(2, "fewer images", strongly(of(*AN_EPOCH, images_trained=1000)), (f"bounds {FIRST}", f"evidence {FIRST}")),
    Forgery(2, "a huge open epoch", naively(huge_progress), (f"bounds {FIRST}", f"chain {FIRST}")),
    Forgery(2, "a huge open epoch, chained", strongly(huge_progress), (f"bounds {FIRST}",)),
    Forgery(
        2,
        "one epoch again and again",
        lambda paths: more_epochs(paths, OF_FIRST, range(31, 61), 0),
        ("rule plausible",),
    ),
    Forgery(
        2, "epochs every second", lambda paths: more_epochs(paths, OF_FIRST, range(31, 61), 1000), ("rule plausible",)
    ),
    Forgery(2, "epochs beyond the plan", lambda paths: more_epochs(paths, 1, range(16, 26), 100), (f"bounds {FIRST}",)),
    Forgery(
        2, "more correct than evaluated", naively(of(*AN_EPOCH, correct=50_001)), (f"bounds {FIRST}", f"chain {FIRST}")
    ),
    Forgery(2, "more correct than evaluated, chained", strongly(of(*AN_EPOCH, correct=50_001)), (f"bounds {FIRST}",)),
    Forgery(2, "negative numbers", strongly(of(*AN_EPOCH, correct=-1)), (f"bounds {FIRST}",)),
    Forgery(2, "negative images", strongly(of(ProgressMade, 3, 7, images_trained=-1)), (f"bounds {FIRST}",)),
    Forgery(
        2,
        "more right in training than trained",
        strongly(of(*AN_EPOCH, correct_trained=1_281_168)),
        (f"bounds {FIRST}",),
    ),
    Forgery(2, "fewer right in training than none", strongly(of(*AN_EPOCH, correct_trained=-1)), (f"bounds {FIRST}",)),
    Forgery(2, "all-reduces longer than the training", strongly(of(*AN_EPOCH, exchange_s=7200.0)), (f"time {FIRST}",)),
    Forgery(
        2, "waits for images longer than the training", strongly(of(*AN_EPOCH, input_s=7200.0)), (f"time {FIRST}",)
    ),
    Forgery(2, "a loss that is not a number", strongly(of(*AN_EPOCH, validation_loss=math.nan)), (f"bounds {FIRST}",)),
    Forgery(2, "an infinite loss", strongly(of(*AN_EPOCH, loss=math.inf)), (f"bounds {FIRST}", f"evidence {FIRST}")),
    Forgery(2, "a learning rate off the schedule", strongly(of(*AN_EPOCH, learning_rate=0.1)), (f"bounds {FIRST}",)),
    Forgery(
        2,
        "an accuracy that the warm-up does not predict",
        strongly(of(TrialEnded, 1, predicted_accuracy=0.99)),
        (f"bounds {FIRST}",),
    ),
]


def clone(paths: RunPaths, heard: bool) -> None:
    """A third replica that did what the second did; the primary has heard of it if `heard`."""
    source = [decode_record(line) for line in paths.history_file(SECOND).read_bytes().splitlines()]
    copies = [replace(record, writer=CLONE, body=as_third(record.body)) for record in source]
    paths.history_file(CLONE).write_bytes(b"".join(map(encode_record, copies)))
    for trial in (2, 4, 6, OF_SECOND):
        paths.evidence(trial + 100).write_bytes(paths.evidence(trial).read_bytes())
    config = read_manifest(paths).config

    def twice(record: Record) -> list[Record]:
        body: Any = record.body
        if isinstance(body, RunReleased):
            return [replace(record, body=replace(body, ready=(0, 1, 2)))]
        of_second = getattr(body, "replica", None) == 1 or getattr(body, "writer", "") == SECOND
        if record.writer != PRIMARY or not of_second:
            return [record]
        copy: Any = as_third(body)
        if isinstance(copy, JobIssued):
            copy = replace(copy, seed=Assignment(copy.round, copy.point).seed(config, 2))
        return [record, replace(record, body=copy)]

    rewrite(paths, twice if heard else same, repair_witness=heard)


def as_third(body: Any) -> Any:
    """What the second replica recorded, or the primary of it, as of a third one."""
    changes: dict[str, Any] = {}
    if getattr(body, "trial", None) is not None:
        changes["trial"] = body.trial + 100
    if hasattr(body, "replica"):
        changes["replica"] = 2
    if hasattr(body, "writer"):
        changes["writer"] = CLONE
    if getattr(body, "cursor", None) is not None:
        changes["cursor"] = body.cursor.replace(SECOND, CLONE)
    return replace(body, **changes)


TRIALS = [
    Forgery(3, "a replica's file cloned", lambda paths: clone(paths, heard=False),
            ("conflict replica-0002-1", "evidence replica-0002-1")),
    Forgery(3, "a replica cloned in all files", lambda paths: clone(paths, heard=True), ("evidence replica-0002-1",)),
    Forgery(3, "a job removed", naively(of(JobIssued, OF_SECOND)), (f"conflict {SECOND}", f"sequence {PRIMARY}")),
    Forgery(3, "a job removed, chained", strongly(of(JobIssued, OF_SECOND)),
            (f"conflict {SECOND}", f"witness {PRIMARY}")),
    Forgery(3, "a job and all that names it removed",
            strongly(both(of(JobIssued, OF_SECOND), of(TrialClosed, OF_SECOND))),
            (f"conflict {SECOND}",)),
    Forgery(3, "a job of another replica", strongly(of(JobIssued, OF_SECOND, replica=0)),
            (f"conflict {SECOND}", f"conflict {PRIMARY}")),
    Forgery(3, "a start on another replica", strongly(of(TrialStarted, OF_SECOND, replica=0)), (f"conflict {SECOND}",)),
    Forgery(3, "a seed of one's own", strongly(of(JobIssued, OF_SECOND, seed=7)), (f"conflict {PRIMARY}",)),
    Forgery(4, "the last records cut off", lambda paths: lines_of(paths, FIRST, lambda index, count: index < count - 8),
            (f"witness {FIRST}",)),
    Forgery(4, "the last records of a primary cut off",
            lambda paths: lines_of(paths, PRIMARY, lambda index, _: index < 200), ("rule completion",)),
    Forgery(4, "an end removed", strongly(of(TrialEnded, 5)), (f"conflict {FIRST}", f"witness {FIRST}")),
    Forgery(4, "a closing removed", strongly(of(TrialClosed, 5)), (f"witness {PRIMARY}",)),
    Forgery(5, "a record removed",
            lambda paths: lines_of(paths, FIRST, lambda index, _: index != 300),
            (f"sequence {FIRST}", f"chain {FIRST}")),
    Forgery(5, "an epoch removed, chained", strongly(of(*AN_EPOCH)), (f"bounds {FIRST}",)),
    Forgery(5, "a built model removed, chained", strongly(of(TrialBuilt, 4)), ("rule evidence",)),
    Forgery(6, "a forged epoch before the true one",
            naively(lambda record: [replace(record, body=replace(record.body, correct=49_999)), record]
                    if isinstance(record.body, EpochCompleted) and record.body.trial == 3 else record),
            (f"sequence {FIRST}", f"chain {FIRST}", f"witness {FIRST}")),
    Forgery(6, "a forged epoch before the true one, chained",
            strongly(lambda record: [replace(record, body=replace(record.body, correct=49_999)), record]
                     if isinstance(record.body, EpochCompleted) and record.body.trial == 3 else record),
            (f"bounds {FIRST}", f"witness {FIRST}")),
]  # fmt: skip


def pressed(record: Record) -> Record:
    """Everything in half of the time, on both clocks."""
    start = 1_700_000_000_000
    time_ms = start + (record.time_ms - start) // 2
    return replace(record, time_ms=time_ms, monotonic_ms=record.monotonic_ms // 2)


def slow_clock(paths: RunPaths) -> None:
    """A run of two hours as one of an hour, by a clock at half speed."""
    configure(paths, run__duration=3600.0)
    for file in paths.telemetry_files():
        head, *lines = file.read_text().splitlines()
        kept = lines[: len(lines) // 2 + 1]
        file.write_text("\n".join([head, *kept]) + "\n")
    rewrite(paths, lambda record: _as_an_hour(pressed(record)))


def _as_an_hour(record: Record) -> Record:
    body = record.body
    if isinstance(body, RunReleased):
        return replace(record, body=replace(body, duration_ms=3_600_000))
    if isinstance(body, RunEnded):
        return replace(record, body=replace(body, end_ms=1_700_003_600_000))
    return record


def twice_released(record: Record) -> list[Record]:
    """A second release half an hour later, which would be the start."""
    late = replace(record, time_ms=record.time_ms + 900_000, monotonic_ms=record.monotonic_ms + 900_000)
    return [record, late] if isinstance(record.body, RunReleased) else [record]


TIMES = [
    Forgery(7, "another end", naively(of(RunEnded, end_ms=1_700_003_600_000)), (f"time {PRIMARY}",)),
    Forgery(7, "another end, chained", strongly(of(RunEnded, end_ms=1_700_003_600_000)), (f"time {PRIMARY}",)),
    Forgery(7, "all times halved", naively(pressed), (f"time {PRIMARY}",)),
    Forgery(7, "all times halved, chained", strongly(pressed), (f"time {PRIMARY}",)),
    Forgery(
        7,
        "UTC halved, not the monotonic clock",
        strongly(lambda record: replace(pressed(record), monotonic_ms=record.monotonic_ms)),
        (f"time {FIRST}",),
    ),
    Forgery(7, "a second release", strongly(twice_released), (f"time {PRIMARY}",)),
    Forgery(7, "another offset", strongly(of(ReplicaReady, clock_offset_ms=600_000)), (f"time {FIRST}",)),
    Forgery(7, "a replica's file moved in time", strongly(moved(SECOND, -60_000)), (f"time {SECOND}",)),
]


def regrown(paths: RunPaths, morphs: Sequence[Morph], keep: int, consistently: bool = True) -> None:
    """The second replica's last trial with `keep` of its morphs and others, as they make it."""
    store = ArchitectureStore(paths)
    lines = paths.history_file(SECOND).read_bytes().splitlines()
    bodies = (decode_record(line).body for line in lines)
    started = next(body for body in bodies if isinstance(body, TrialStarted) and body.trial == OF_SECOND)
    own = started.morphs[:keep]
    architecture = store.load(started.architecture)
    if keep < len(started.morphs):
        assert started.parent is not None
        architecture = store.load(started.parent)
    for morph in morphs:
        architecture = morph.apply(architecture)
    store.save(architecture)
    change = of(
        TrialStarted,
        OF_SECOND,
        architecture=architecture.hash,
        morphs=(*own, *map(morph_data, morphs)) if consistently else started.morphs,
    )
    rewrite(paths, both(change, of(TrialBuilt, OF_SECOND, architecture=architecture.hash)))


def deeper(paths: RunPaths, count: int = 1, keep: int = 3, consistently: bool = True) -> None:
    """The second replica's last trial with further blocks."""
    architecture: Architecture = ArchitectureStore(paths).load("81873c26144c69db")
    sites = deepen_sites(architecture)
    regrown(paths, [Deepen(sites[-1 - index]) for index in range(count)], keep, consistently)


def huge(paths: RunPaths) -> None:
    """The second replica's last trial with the widest stream of its network eight times as wide."""
    widest = max(streams(ArchitectureStore(paths).load("81873c26144c69db")), key=lambda stream: stream.channels)
    regrown(paths, [Widen(widest.producers[0], 8 * widest.channels)], 3)


def foreign(paths: RunPaths) -> None:
    """The file of an architecture with another network in it."""
    paths.architecture("81873c26144c69db").write_bytes(paths.architecture("2647cc49c7ba9adf").read_bytes())


def given(**changes: Any) -> Forge:
    """Other terms of the start of the second replica's last trial."""
    return strongly(of(TrialStarted, OF_SECOND, **changes))


PARAMETERS = {"batch_size": 448, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}

ARCHITECTURES = [
    Forgery(8, "a bigger architecture", lambda paths: deeper(paths, consistently=False), (f"architecture {SECOND}",)),
    Forgery(8, "a bigger architecture with its morphs", deeper, ("replay morphs", "replay architecture")),
    Forgery(8, "five morphs", lambda paths: deeper(paths, 2), (f"architecture {SECOND}",)),
    Forgery(8, "beyond the limits", huge, (f"architecture {SECOND}",)),
    Forgery(8, "limits of a smaller device", given(memory_bytes=2**34), (f"architecture {SECOND}",)),
    Forgery(
        8, "limits of a smaller device for all", strongly(of(TrialStarted, memory_bytes=2**34)), ("rule plausible",)
    ),
    Forgery(8, "limits of a larger device", given(memory_bytes=2**40), ("rule plausible",)),
    Forgery(8, "a parent that has not completed", given(parent="663f9069cd242f18"), (f"architecture {SECOND}",)),
    Forgery(8, "an architecture's file exchanged", foreign, ("architecture architecture",)),
    Forgery(
        8,
        "hyperparameters off the defaults",
        given(hyperparameters={**PARAMETERS, "batch_size": 64}),
        (f"bounds {SECOND}", f"evidence {SECOND}"),
    ),
    Forgery(
        8, "a kernel without tuning", given(hyperparameters={**PARAMETERS, "kernel_size": 5}), (f"bounds {SECOND}",)
    ),
]


def failing(kind: str, how: Literal["failed", "cancelled"] = "failed") -> Change:
    """Every training that ended was ended before its end, as an opponent does to choose."""

    def change(record: Record) -> Record:
        body = record.body
        if isinstance(body, TrialEnded):
            replica = 0 if record.writer == FIRST else 1
            failed = TrialFailed(trial=body.trial, replica=replica, kind=kind, reason="killed by signal 9")
            return replace(record, body=failed)
        if isinstance(body, TrialClosed) and body.how == "completed":
            return replace(record, body=replace(body, how=how))
        return record

    return change


FREE = [
    Forgery(19, "trainings let fail", strongly(failing("crash")), ("rule failures",)),
    Forgery(19, "trainings cancelled", strongly(failing("cancelled", "cancelled")), ("rule failures",)),
    Forgery(
        19,
        "trainings that fail for want of memory, and are not tried again",
        strongly(failing("crowded")),
        ("rule failures",),
    ),
    Forgery(19, "trainings on machines that are not set up, and go on", strongly(failing("unfit")), ("rule failures",)),
    Forgery(19, "weights of one trial kept", configured(search__kept_weights=1), ("rule limits",)),
    Forgery(19, "an hour of patience with storage", configured(storage__patience=3600.0), ("rule limits",)),
    Forgery(19, "any number of failed trials", configured(replica__max_failed_trials=1000), ("rule limits",)),
    Forgery(19, "no state of a training", configured(training__checkpoint_interval=7200.0), ("rule limits",)),
    Forgery(19, "another seed", configured(run__seed=7), ("rule seed",)),
    Forgery(19, "a memory limit", configured(replica__accelerator_memory_gib=17.0), ("rule memory limit",)),
]

CLAIMS = [*PASSED_OFF, *EPOCHS, *TRIALS, *TIMES, *ARCHITECTURES, *FREE]
