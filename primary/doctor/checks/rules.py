"""Whether the run will be official, and which rules it would leave."""

from __future__ import annotations

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
"""What to type to meet a rule that the configuration decides."""


def check_rules(evidence: Evidence) -> list[Finding]:
    """The rules that the settings decide, as if the run went well."""
    left = broken_settings(check(_planned(evidence)))
    if not left:
        return [Finding("rules", "ok", f"nothing keeps the run from being official ({len(RULES)} rules)")]
    return [
        Finding(
            "rules",
            "warning",
            f"unofficial: {item.rule}: found {item.found}; required {item.required}",
            REMEDIES.get(item.rule, "aiperf run --preset official"),
        )
        for item in left
    ]


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
