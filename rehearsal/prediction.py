"""The score of a planned cluster, from rehearsals of sizes that fit and what follows from them.

Each replica of a rehearsal is one sample of the operations per second that a replica makes, with
all that happened to it. The score of N replicas is N times their mean; its band is that of a
Student t distribution over the rehearsals of the largest size, so that what all replicas of a run
share (outages, deaths of the primary) widens it. The error of more replicas than were rehearsed
keeps falling with the logarithm of their number, as it did in the rehearsals, and no lower than
the curve of the machine file allows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log2, sqrt
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from scipy.stats import t as student

from aiperf.config.settings import RunConfig
from aiperf.errors import UsageError
from aiperf.rules.score import regulated
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import RunData, read_run
from analysis.report.build import build_report
from rehearsal.lifecycle import Outcome, Rehearsal, conduct
from rehearsal.machine.file import MachineFile

# The first limit that more replicas reach: the load of one replica against what bears it.

PRIMARY_S_PER_MESSAGE = 140e-6
"""CPU seconds of the primary for a message of a replica (docs/performance.md)."""

PRIMARY_SHARE = 0.7
"""Share of its core from which on the primary answers late."""


@dataclass(frozen=True, slots=True)
class Load:
    """Load of one replica on the others, per second of a run, as counted in a rehearsal."""

    messages: float
    """Messages to the primary."""
    writes: float
    """Writes of records to the shared file system, by replica and primary."""
    bytes: float
    """Bytes of records."""


@dataclass(frozen=True, slots=True)
class FirstLimit:
    """The first limit that more replicas reach, and at how many."""

    what: str
    replicas: int


def first_limit(machine: MachineFile, load: Load) -> FirstLimit:
    """The limit that is reached with the fewest replicas."""
    storage = machine.storage
    bearable = {
        "CPU of the primary": PRIMARY_SHARE / PRIMARY_S_PER_MESSAGE / max(load.messages, 1e-9),
        "operations of the file server": storage.operations_per_s / max(load.writes, 1e-9),
        "bytes written to the file server": storage.bytes_per_s / max(load.bytes, 1e-9),
    }
    what = min(bearable, key=lambda name: bearable[name])
    return FirstLimit(what, max(1, int(bearable[what])))


# The score of all sizes from the rehearsals of the smaller ones.

CONFIDENCE = 0.95
LARGEST_REHEARSED = 16
"""Replicas up to which every size is rehearsed."""


@dataclass(frozen=True, slots=True)
class Band:
    """A value that is expected, and where it lies in 95 of 100 cases: None if one sample says."""

    value: float
    low: float | None = None
    high: float | None = None

    def through(self, change: Callable[[float], float]) -> Band:
        """Change value and bounds by an increasing function."""
        low, high = (None if end is None else change(end) for end in (self.low, self.high))
        return Band(change(self.value), low, high)

    def scaled(self, factor: float) -> Band:
        """Multiply value and bounds by a positive factor."""
        return self.through(lambda value: value * factor)


@dataclass(frozen=True, slots=True)
class Predicted:
    """The prediction for one number of replicas."""

    replicas: int
    accelerators: int
    rehearsed: bool
    """False if it is more than was rehearsed."""
    score_ops: Band
    regulated_score_ops: Band
    error: Band
    efficiency: Band
    """Score of a replica relative to the smallest size."""
    first_limit: FirstLimit


@dataclass(frozen=True, slots=True)
class Sample:
    """One rehearsal."""

    replicas: int
    ops_per_replica: float
    error: float
    load: Load


def sizes_up_to(replicas: int) -> list[int]:
    """1, 2, 4, ..., and the number itself."""
    return [*(2**power for power in range(replicas.bit_length()) if 2**power < replicas), replicas]


def predict(rehearsal: Rehearsal, seeds: int) -> list[Predicted]:
    """Rehearse the sizes that fit, each with several seeds, and predict all others from them.

    Raises UsageError if nothing was trained in a rehearsal, and OSError if there is no room for
    temporary files.
    """
    sizes = sizes_up_to(rehearsal.config.run.replicas)
    samples = {
        size: [_sample(rehearsal, size, seed) for seed in range(seeds)] for size in sizes if size <= LARGEST_REHEARSED
    }
    return list(_predicted(rehearsal, sizes, samples))


def _sample(rehearsal: Rehearsal, replicas: int, seed: int) -> Sample:
    run = rehearsal.config.run.model_copy(update={"replicas": replicas, "seed": rehearsal.config.run.seed + seed})
    config = rehearsal.config.model_copy(update={"run": run})
    with tempfile.TemporaryDirectory(prefix="aiperf-predict-") as folder:
        root = Path(folder) / "run"
        outcome = conduct(root, replace(rehearsal, config=config))
        data = read_run(RunPaths(root))
        report = build_report(data)
        if not report.operations_total:
            raise UsageError(f"nothing is trained in a rehearsal of {replicas} replica(s): {_why_lost(data)}")
        return Sample(replicas, (report.score_ops or 0.0) / replicas, report.error, _load(config, outcome, root))


def _why_lost(data: RunData) -> str:
    losses = (loss.body.reason for replica in data.ledger.replicas.values() for loss in replica.losses)
    return next(losses, "its duration is too short")


def _load(config: RunConfig, outcome: Outcome, root: Path) -> Load:
    seconds = config.run.duration * config.run.replicas
    size = sum(file.stat().st_size for file in RunPaths(root).history_files("*"))
    return Load(outcome.messages / seconds, outcome.writes / seconds, size / seconds)


def _predicted(rehearsal: Rehearsal, sizes: Sequence[int], samples: dict[int, list[Sample]]) -> Iterator[Predicted]:
    largest = max(samples)
    smallest = fmean(sample.ops_per_replica for sample in samples[min(samples)])
    load = samples[largest][0].load
    floor = 1 - min(0.999, rehearsal.machine.curve.best + rehearsal.machine.curve.gain)
    slope = _slope({size: fmean(sample.error for sample in found) for size, found in samples.items()})
    for size in sizes:
        known = samples.get(size, samples[largest])
        each = _band([sample.ops_per_replica for sample in known])
        fall = slope * log2(size / largest) if size > largest else 0.0
        error = _clipped(_band([sample.error + fall for sample in known]), floor)
        score = each.scaled(size)
        yield Predicted(
            replicas=size,
            accelerators=size * rehearsal.machine.node.accelerators,
            rehearsed=size in samples,
            score_ops=score,
            regulated_score_ops=_regulated(score, error),
            error=error,
            efficiency=each.scaled(1 / smallest if smallest else 0.0),
            first_limit=first_limit(rehearsal.machine, load),
        )


def _clipped(error: Band, floor: float) -> Band:
    return error.through(lambda value: min(1.0, max(floor, value)))


def _regulated(score: Band, error: Band) -> Band:
    value = regulated(score.value, error.value)
    if score.low is None or score.high is None or error.low is None or error.high is None:
        return Band(value)
    return Band(value, regulated(score.low, error.high), regulated(score.high, error.low))


def _slope(errors: dict[int, float]) -> float:
    """The change of the error with each doubling of the replicas; never a rise."""
    if len(errors) < 2:
        return 0.0
    return min(0.0, float(np.polyfit([log2(size) for size in errors], list(errors.values()), 1)[0]))


def _band(values: Sequence[float]) -> Band:
    """Mean, and the interval in which the next value lies."""
    mean = fmean(values)
    if len(values) < 2:
        return Band(mean)
    # The interval of a further value, not of the mean: hence the 1 under the root.
    reach = float(student.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) * sqrt(1 + 1 / len(values))
    return Band(mean, max(0.0, mean - reach), mean + reach)
