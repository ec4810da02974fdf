"""The models of a run: their trials, the course of their quality, and facts for the rules."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from aiperf.facts import EpochFacts
from aiperf.records.bodies import WorkloadStarted
from aiperf.records.entries import TrialLedger
from aiperf.rules.science import Cost, ScienceFacts, WorkloadFacts
from analysis.reading.run_data import RunData
from analysis.reading.science import known_of, measured_of, reaches_target
from analysis.report.estimates import PhysicsPart
from analysis.report.model import TrialPart

ERRORS = 5
"""Exponent of the quality in valid operations per second (BenchCouncil's HPC AI500 v2)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The measures of one epoch next to the target. Time is UTC milliseconds, as the primary's."""

    time_ms: int
    trial: int
    facts: EpochFacts
    quality: float | None
    """The first measure of the target."""
    reached: bool
    share: float
    """quality / target, of errors target / quality; of several measures, the smallest."""


@dataclass(frozen=True, slots=True)
class Model:
    """One instance of a workload: its trials by number, and its epochs until the end of the run."""

    workload: str
    instance: int
    trials: tuple[TrialLedger, ...]
    start_ms: int
    """Time of issue of its first job."""
    readings: tuple[Reading, ...]
    """Every completed epoch, in order of time."""

    @property
    def begun(self) -> WorkloadStarted | None:
        """The start of its first training; None if none began."""
        return next((trial.workload for trial in self.trials if trial.workload is not None), None)

    @property
    def reached(self) -> Reading | None:
        """The first epoch at or beyond the target."""
        return next((reading for reading in self.readings if reading.reached), None)

    @property
    def best(self) -> Reading | None:
        """The epoch that reached the target, else the one that came closest to it."""
        measured = [reading for reading in self.readings if reading.quality is not None]
        return self.reached or max(measured, key=lambda reading: reading.share, default=None)

    @property
    def training_quality(self) -> float | None:
        """The first measure of the target on training examples, as last evaluated."""
        return self._last(reading.facts.training_measures for reading in self.readings)

    @property
    def test_quality(self) -> float | None:
        """The first measure of the target on the test split, as last evaluated."""
        return self._last(reading.facts.test_measures for reading in self.readings)

    @property
    def test_images(self) -> int | None:
        """Number of examples of the test split; None if they were not evaluated."""
        found = [reading.facts.test_images for reading in self.readings if reading.facts.test_images]
        return found[-1] if found else None

    def _last(self, measures: Iterable[dict[str, float] | None]) -> float | None:
        name = next(iter(self.begun.target), "") if self.begun is not None else ""
        found = [values.get(name) for values in measures if values is not None]
        return found[-1] if found else None


def models_of(data: RunData) -> list[Model]:
    """All models that a job was issued for or that were trained, by workload and number."""
    if "models" not in data.computed:
        data.computed["models"] = _models(data)
    models: list[Model] = data.computed["models"]
    return models


def _models(data: RunData) -> list[Model]:
    found: dict[tuple[str, int], list[TrialLedger]] = defaultdict(list)
    for _, trial in sorted(data.ledger.trials.items()):
        # The job names the model; where the primary's file lacks it, the training does.
        for body in (trial.issued, trial.workload):
            if body is not None and body.workload is not None and body.instance is not None:
                found[body.workload, body.instance].append(trial)
                break
    return [_model(data, workload, number, tuple(own)) for (workload, number), own in sorted(found.items())]


def _model(data: RunData, workload: str, instance: int, trials: tuple[TrialLedger, ...]) -> Model:
    moments = [trial.issued_ms for trial in trials if trial.issued_ms is not None]
    # Without the primary's file the first record of a training has to do: a damage, as reported.
    moments = moments or [
        data.ledger.corrected(trial.writer, trial.started_ms) for trial in trials if trial.started_ms is not None
    ]
    readings = sorted((reading for trial in trials for reading in _readings(data, trial)), key=_when)
    return Model(workload, instance, trials, min(moments, default=data.end_ms), tuple(readings))


def _when(reading: Reading) -> tuple[int, int]:
    return reading.time_ms, reading.facts.epoch


def _readings(data: RunData, trial: TrialLedger) -> list[Reading]:
    """The epochs of a trial until the end of the run; none of one without a target."""
    body = trial.workload
    if body is None or not body.target:
        return []
    corrected = ((data.ledger.corrected(trial.writer, item.time_ms), item.body) for item in trial.epochs.values())
    return [_reading(time_ms, trial.trial, facts, body) for time_ms, facts in corrected if time_ms <= data.end_ms]


def _reading(time_ms: int, trial: int, facts: EpochFacts, body: WorkloadStarted) -> Reading:
    values = measured_of(facts, body)
    known, reached = known_of(values), reaches_target(facts, body)
    shares = [_share(value, body.target[name], body.higher) for name, value in known.items()]
    share = min(shares, default=0.0) if len(known) == len(body.target) else 0.0
    return Reading(time_ms, trial, facts, values[next(iter(body.target))], reached, share)


def _share(value: float, target: float, higher: bool) -> float:
    """The quality as a share of the target; of numbers without a ratio, 0, or more than 1."""
    above, below = (value, target) if higher else (target, value)
    if below > 0:
        return max(0.0, above / below)
    return inf if above >= below else 0.0


def valid_share(reading: Reading | None) -> float:
    """The factor of valid operations per second: a share to the power of 5, at most 1."""
    return min(1.0, reading.share) ** ERRORS if reading is not None else 0.0


def science_facts(data: RunData, trials: Sequence[TrialPart], physics: PhysicsPart) -> ScienceFacts:
    """The facts of a run."""
    models = models_of(data)
    begun = [trial.workload for model in models for trial in model.trials if trial.workload is not None]
    names = dict.fromkeys([*data.manifest.config.science.workloads, *(model.workload for model in models)])
    return ScienceFacts(
        config=data.manifest.config,
        ended=data.ended,
        images_trained=sum(trial.images_trained for trial in trials),
        workloads=tuple(_workload(data, name, [item for item in models if item.workload == name]) for name in names),
        sizes=tuple(sorted({body.size for body in begun})),
        generated=any(body.generated for body in begun),
        precisions=tuple(sorted({body.precision for body in begun})),
        damages=data.damage_texts,
        chained=data.chained,
        segments=data.ledger.segments,
        released=len(data.ledger.released.body.ready) if data.ledger.released else 0,
        implausible=tuple(f"{item.where}: {item.found} (limit: {item.limit})" for item in physics.findings),
    )


def _workload(data: RunData, name: str, models: Sequence[Model]) -> WorkloadFacts:
    begun = [trial.workload for model in models for trial in model.trials if trial.workload is not None]
    issued = [next((trial.issued for trial in model.trials if trial.issued is not None), None) for model in models]
    return WorkloadFacts(
        workload=name,
        instances=max([data.manifest.config.science.instances, *(model.instance + 1 for model in models)]),
        reached=sum(model.reached is not None for model in models),
        targets=tuple(sorted({tuple(body.target.values()) for body in begun})),
        seeds=tuple(body.seed for body in issued if body is not None),
        fingerprints=tuple(sorted({body.fingerprint for body in begun}, key=str)),
        epoch_images=tuple(
            sorted(
                {
                    (item.facts.images_trained, item.facts.images_evaluated)
                    for model in models
                    for item in model.readings
                }
            )
        ),
        costs=tuple(sorted({cost for model in models for trial in model.trials for cost in _costs(data, trial)})),
    )


def _costs(data: RunData, trial: TrialLedger) -> Iterator[Cost]:
    """The networks and operations of a trial's images; none if it never began, or is damaged."""
    counted = data.costs.by_trial.get(trial.trial)
    if trial.workload is not None and counted is not None:
        operations = counted.operations
        yield Cost(tuple(sorted(trial.workload.networks.values())), operations.total, operations.forward)
