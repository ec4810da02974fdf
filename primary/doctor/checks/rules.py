"""Forecast of the verdict: the rules that the run would not meet."""

from __future__ import annotations

from aiperf.config.settings import RunConfig
from aiperf.rules import science
from aiperf.rules.table import RULES, RunFacts, as_planned, broken_settings, check
from primary.doctor.findings import Finding
from primary.doctor.node_answers import Evidence

REMEDIES = {
    "dataset": "--dataset imagenet --data-dir DIR",
    "data": "aiperf dataset check DIR --write-manifest",
    "trainer": "--set training.trainer=keras",
    "initial architecture": "--set search.initial_architecture=resnet50",
    "NAS": "--set search.strategy=bayesian",
    "HPO": "--set search.hpo=tpe --set search.hpo_first_round=4",
    "HPO points": "--set search.hpo_points=2",
    "search space": "remove search.space from the configuration file",
    "growth": "--set search.max_growth=4",
    "memory limit": "remove replica.accelerator_memory_gib from the configuration file",
    "planned epochs": "--set training.max_epochs=60",
    "seed": "--seed 1",
    "telemetry": "--set telemetry.interval=30s",
    "precision": "--set training.precision=mixed_bfloat16",
    "updates": "--set training.groups=1",
    "input": "--set training.input=dataset",
    "duration": "--duration 12h",
}
"""Advice for each rule that the configuration decides."""

OF_SCIENCE = {
    "observed data": "--set science.size=official --set science.data_dir=DIR",
    "size": "--set science.size=official",
    "instances": "--set science.instances=5",
}
"""The same for the rules of scientific suites that are not AutoML's."""


def check_rules(evidence: Evidence) -> list[Finding]:
    """The rules that the settings decide, as if the run went well."""
    if evidence.is_science:
        left, number = broken_settings(science.check(_planned_science(evidence.config))), len(science.RULES)
    else:
        left, number = broken_settings(check(_planned(evidence))), len(RULES)
    if not left:
        return [Finding("rules", "ok", f"nothing keeps the run from being official ({number} rules)")]
    return [
        Finding(
            "rules",
            "warning",
            f"unofficial: {item.rule}: found {item.found}; required {item.required}",
            {**REMEDIES, **OF_SCIENCE}.get(
                item.rule,
                "aiperf config show (docs/science.md)" if evidence.is_science else "aiperf run --preset official",
            ),
        )
        for item in left
    ]


def _planned_science(config: RunConfig) -> science.ScienceFacts:
    """The outcome that the configuration of a scientific suite aims at."""
    names, number, size = config.science.workloads, config.science.instances, config.science.size
    workloads = tuple(science.WorkloadFacts(name, number, number, seeds=tuple(range(number))) for name in names)
    return science.as_planned(
        science.ScienceFacts(config, "unfinished", 0, workloads, (size,), generated=size == "rehearsal")
    )


def _planned(evidence: Evidence) -> RunFacts:
    """The outcome that the configuration aims at."""
    config, facts = evidence.config, list(evidence.facts())
    operations = {item.initial_operations for item in facts} - {None}
    return as_planned(
        RunFacts(
            config=config,
            ended="unfinished",
            duration_s=0.0,
            error=1.0,
            images_trained=0,
            precisions=tuple(sorted({item.precision for item in facts})),
            released=config.run.replicas,
            initial_operations=min(filter(None, operations), default=None),
            fingerprints=tuple({item.fingerprint for item in facts}),
        )
    )
