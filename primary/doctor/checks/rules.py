"""Forecast of the verdict: the rules that the run would not meet."""

from aiperf.rules import science
from aiperf.rules.official_run import RULES
from primary.doctor.contract import Evidence, Finding
from primary.preflight import unmet_rules

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
    "limits": "remove search.kept_weights, storage.patience, replica.max_failed_trials and "
    "training.checkpoint_interval from the configuration file",
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
"""Advice for each rule that only scientific suites have."""


def check_rules(evidence: Evidence) -> list[Finding]:
    """The rules that the settings decide, as if the run went well."""
    left, number = unmet_rules(evidence.config, list(evidence.facts())), len(RULES)
    if evidence.is_science:
        number = len(science.RULES)
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
