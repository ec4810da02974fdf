"""The score of a planned cluster, from rehearsals of sizes that fit and what follows from them.

Each replica of a rehearsal is one sample of the operations per second that a replica makes, with
all that happened to it. The score of N replicas is N times their mean; its band is that of a
Student t distribution over the rehearsals of the largest size, so that what all replicas of a run
share (outages, deaths of the primary) widens it. The error of more replicas than were rehearsed
keeps falling with the logarithm of their number, as it did in the rehearsals, and no lower than
the curve of the machine file allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log2, sqrt
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from scipy.stats import t as student

from aiperf.config.settings import RunConfig
from aiperf.errors import UsageError
from aiperf.files import temporary_folder
from aiperf.rules.score import regulated
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import RunData, read_run
from analysis.report.build import build_report
from analysis.report.hybrid.parts import HybridPart
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
class Exchange:
    """Work of the groups and parameter servers of a rehearsal (`training.groups`)."""

    staleness: float
    """Mean staleness of an update."""
    largest_staleness: int
    waiting_share: float
    """Share of the groups' time in which they waited for servers."""
    group_share: float
    """Share in all-reduce and broadcast inside the groups, waits for slower ranks included."""
    busiest_server: int
    busy_share: float
    """Share of the time in which that server worked."""


@dataclass(frozen=True, slots=True)
class PredictedGroups:
    """The exchange of the groups of a replica."""

    groups: int
    staleness: Band
    largest_staleness: int
    waiting_share: Band
    group_share: Band
    busiest_server: int
    busy_share: Band
    saturated_groups: int | None
    """Groups of this pace with which the busiest server has no time left; None: it has no load."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """The prediction for one number of replicas."""

    replicas: int
    accelerators: int
    rehearsed: bool
    """False if it is more than was rehearsed."""
    score_ops: Band
    regulated_score_ops: Band | None
    """None for scientific workloads, as is the error."""
    error: Band | None
    efficiency: Band
    """Score of a replica relative to the smallest size."""
    first_limit: FirstLimit
    exchange: PredictedGroups | None = None
    """None without groups."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One rehearsal."""

    replicas: int
    ops_per_replica: float
    error: float
    load: Load
    exchange: Exchange | None = None


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
    if run.suite == "science":  # weak scaling: as many models a replica in each size
        science = config.science.model_copy(update={"instances": config.science.instances * replicas})
        config = config.model_copy(update={"science": science})
    with temporary_folder("aiperf-predict-") as folder:
        root = folder / "run"
        outcome = conduct(root, replace(rehearsal, config=config))
        data = read_run(RunPaths(root))
        report = build_report(data)
        if not report.operations_total:
            raise UsageError(f"nothing is trained in a rehearsal of {replicas} replica(s): {_why_lost(data)}")
        ops = (report.score_ops or 0.0) / replicas
        return Sample(replicas, ops, report.error, _load(config, outcome, root), _exchange(report.hybrid))


def _exchange(part: HybridPart | None) -> Exchange | None:
    if part is None or not part.server_details:
        return None
    busiest = max(part.server_details, key=lambda server: server.busy_share or 0.0)
    return Exchange(
        staleness=part.staleness.mean or 0.0,
        largest_staleness=part.staleness.max or 0,
        waiting_share=part.waiting_share or 0.0,
        group_share=part.group_share or 0.0,
        busiest_server=busiest.server,
        busy_share=busiest.busy_share or 0.0,
    )


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
        score, classifies = each.scaled(size), rehearsal.config.run.suite == "automl"
        yield Predicted(
            replicas=size,
            accelerators=size * rehearsal.machine.node.ranks,
            rehearsed=size in samples,
            score_ops=score,
            regulated_score_ops=_regulated(score, error) if classifies else None,
            error=error if classifies else None,
            efficiency=each.scaled(1 / smallest if smallest else 0.0),
            first_limit=first_limit(rehearsal.machine, load),
            exchange=_groups(rehearsal.config.training.groups, [sample.exchange for sample in known]),
        )


def _groups(groups: int, samples: Sequence[Exchange | None]) -> PredictedGroups | None:
    """The exchange of a replica's groups: replicas do not exchange with each other."""
    known = [sample for sample in samples if sample is not None]
    if not known:
        return None
    busy = _band([sample.busy_share for sample in known])
    return PredictedGroups(
        groups=groups,
        staleness=_band([sample.staleness for sample in known]),
        largest_staleness=max(sample.largest_staleness for sample in known),
        waiting_share=_band([sample.waiting_share for sample in known]),
        group_share=_band([sample.group_share for sample in known]),
        busiest_server=known[0].busiest_server,
        busy_share=busy,
        # The load of a server grows with the groups, each of which brings as many updates.
        saturated_groups=int(groups / busy.value) if busy.value > 0 else None,
    )


def _clipped(error: Band, floor: float) -> Band:
    return error.through(lambda value: min(1.0, max(floor, value)))


def _regulated(score: Band, error: Band) -> Band:
    value = regulated(score.value, error.value)
    if score.low is None or score.high is None or error.low is None or error.high is None:
        return Band(value)
    # The regulated score rises with the score and falls with the error, so its lowest value pairs
    # the lowest score with the highest error.
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
