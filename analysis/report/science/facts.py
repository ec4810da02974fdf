"""Facts for the rules of scientific workloads, from a run's records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aiperf.records.entries import TrialLedger
from aiperf.rules.science import Cost, ScienceFacts, WorkloadFacts
from analysis.reading.run_data import RunData
from analysis.report.estimates import PhysicsPart
from analysis.report.model import TrialPart
from analysis.report.science.models import Model, models_of


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
