"""The table of rules: settings and outcomes that leave it, and the status that follows."""

import tomllib
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from aiperf.config.datasets import REGISTERED
from aiperf.config.settings import load_config
from aiperf.rules.official_run import (
    HPO_POINTS,
    MAXIMUM_GROWTH,
    MINIMUM_EPOCHS,
    RESNET50_OPERATIONS,
    RULES,
    SEED,
    Checked,
    Group,
    RunFacts,
    check,
    required_data,
    status,
    violations,
)

GOOD = RunFacts(
    load_config(preset="official"),
    "deadline",
    43200.0,
    0.25,
    1_000_000,
    ("mixed_bfloat16",),
    initial_operations=RESNET50_OPERATIONS,
    fingerprints=("ab" * 32,),
)


def broken(facts: RunFacts) -> set[str]:
    return {violation.rule for violation in violations(facts)}


def test_a_run_by_the_rules_breaks_none_of_them() -> None:
    assert broken(GOOD) == set()


@pytest.mark.parametrize(
    ("overrides", "rule", "found"),
    [
        ({"run.dataset": "images"}, "dataset", "images"),
        ({"training.trainer": "simulated"}, "trainer", "simulated"),
        (
            {"search.initial_architecture": "resnet101"},
            "initial architecture",
            f"resnet101, {RESNET50_OPERATIONS} operations an image",
        ),
        ({"search.strategy": "random"}, "NAS", "random network morphism"),
        ({"search.hpo": "random"}, "HPO", "random from round 4 on"),
        ({"search.hpo_first_round": 2}, "HPO", "tpe from round 2 on"),
        ({"training.input": "synthetic"}, "input", "synthetic"),
        ({"search.hpo_points": 1}, "HPO points", "1"),
        ({"search.max_growth": 8.0}, "growth", "a limit of 8 times"),
        ({"search.max_growth": 3.9}, "growth", "a limit of 3.9 times"),
        ({"replica.accelerator_memory_gib": 640.0}, "memory limit", "640 GiB"),
        ({"training.groups": 2}, "updates", "2 groups with 1 parameter server(s)"),
        ({"training.max_epochs": 59}, "planned epochs", "59"),
        ({"run.seed": 7}, "seed", "7"),
        ({"telemetry.interval": "10m"}, "telemetry", "every 600 s"),
        ({"search.kept_weights": 7}, "limits", "7 trials, 600 s, 3 in a row, 300 s"),
        ({"storage.patience": "10m1s"}, "limits", "8 trials, 601 s, 3 in a row, 300 s"),
        ({"replica.max_failed_trials": 4}, "limits", "8 trials, 600 s, 4 in a row, 300 s"),
        ({"training.checkpoint_interval": "31m"}, "limits", "8 trials, 600 s, 3 in a row, 1860 s"),
        ({"run.duration": "59m59s"}, "duration", "3599 s"),
    ],
)
def test_every_setting_that_leaves_the_rules_is_found(overrides: dict[str, Any], rule: str, found: str) -> None:
    config = load_config(overrides=overrides)
    facts = replace(GOOD, config=config, duration_s=config.run.duration)
    assert broken(facts) == {rule}
    assert next(v.found for v in violations(facts) if v.rule == rule) == found
    assert status(check(facts)) == "UNOFFICIAL"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"error": 0.3001}, "error"),
        ({"ended": "interrupted"}, "completion"),
        ({"images_trained": 0}, "work"),
        ({"damages": ("a.jsonl line 3: torn",)}, "records"),
    ],
)
def test_every_outcome_that_misses_the_rules_is_found(change: dict[str, Any], rule: str) -> None:
    assert broken(replace(GOOD, **change)) == {rule}


@pytest.mark.parametrize("dataset", ["imagenet", "digits"])
def test_an_initial_architecture_that_was_never_trained_breaks_its_rule(dataset: str) -> None:
    facts = replace(GOOD, config=load_config(overrides={"run.dataset": dataset}), initial_operations=None)
    found = {item.rule: item.found for item in violations(facts)}
    assert found.pop("initial architecture") == "resnet50, never trained"
    assert status(check(facts)) == "UNOFFICIAL"


@pytest.mark.parametrize(
    ("dataset", "fingerprints", "found", "met"),
    [
        ("imagenet", ("ab" * 32,), "unregistered " + "ab" * 6, True),
        ("imagenet", ("ab" * 32, "cd" * 32), "several", False),
        ("imagenet", (None,), "unknown", False),
        ("imagenet", (None, "ab" * 32), "unknown", False),
        ("digits", (REGISTERED["digits"],), "registered", True),
        ("digits", ("ab" * 32,), "not the registered one", False),
    ],
)
def test_all_trials_train_on_the_same_images_and_on_the_registered_ones(
    dataset: str, fingerprints: tuple[str | None, ...], found: str, met: bool
) -> None:
    facts = replace(GOOD, config=load_config(overrides={"run.dataset": dataset}), fingerprints=fingerprints)
    rule = next(item for item in check(facts) if item.rule == "data")
    assert (rule.found, rule.passed, rule.group) == (found, met, "setting")


def test_the_rule_names_the_fingerprint_that_imagenet_must_have(monkeypatch: pytest.MonkeyPatch) -> None:
    value = "ab" * 32
    assert required_data({"imagenet": value}).endswith(f", {value} of imagenet")
    assert required_data({"digits": value}).endswith(", the registered one if there is one")
    monkeypatch.setitem(REGISTERED, "imagenet", value)
    for found, met in (("cd" * 32, False), (value, True)):
        rule = next(item for item in check(replace(GOOD, fingerprints=(found,))) if item.rule == "data")
        assert rule.passed is met


@pytest.mark.parametrize(
    ("failed", "trials", "met"),
    [
        (5, 6, True),
        (6, 100, False),
        (6, 120, True),
        (60, 1000, False),
        (0, 0, True),
    ],
)
def test_few_trainings_may_fail(failed: int, trials: int, met: bool) -> None:
    found = replace(GOOD, trials=trials, failed_trials=failed)
    assert broken(found) == (set() if met else {"failures"})
    assert status(check(found)) == ("PASSED" if met else "UNOFFICIAL")


def test_telemetry_without_samples_breaks_its_rule() -> None:
    (broken_rule,) = violations(replace(GOOD, unsampled=("replica 3 on node n3: samples cover 0.0 %",)))
    assert broken_rule.rule == "telemetry"
    assert broken_rule.found.endswith("; replica 3 on node n3: samples cover 0.0 %")


def test_a_run_without_telemetry_breaks_its_rule() -> None:
    off = GOOD.config.telemetry.model_copy(update={"interval": 0.0})
    (broken_rule,) = violations(replace(GOOD, config=GOOD.config.model_copy(update={"telemetry": off})))
    assert (broken_rule.rule, broken_rule.found) == ("telemetry", "off")


def test_a_space_in_the_run_directory_breaks_its_rule() -> None:
    (broken_rule,) = violations(replace(GOOD, own_space=True))
    assert (broken_rule.rule, broken_rule.found) == ("search space", "a space in the run directory")


def test_the_official_preset_gives_every_setting_that_a_rule_fixes() -> None:
    preset = tomllib.loads(resources.files("aiperf").joinpath("presets/official.toml").read_text(encoding="utf-8"))
    given = {f"{section}.{name}": value for section, own in preset.items() for name, value in own.items()}
    assert (
        given.items()
        >= {
            "run.seed": SEED,
            "search.max_growth": MAXIMUM_GROWTH,
            "search.hpo_points": HPO_POINTS,
            "search.initial_architecture": "resnet50",
            "training.max_epochs": MINIMUM_EPOCHS,
            "telemetry.interval": "30s",
        }.items()
    )
    assert not {"search.space", "replica.accelerator_memory_gib"} & given.keys()


@pytest.mark.parametrize("setting", [{"training.max_epochs": 90}, {"telemetry.interval": 1}])
def test_settings_on_the_stricter_side_are_within_the_rules(setting: dict[str, Any]) -> None:
    assert broken(replace(GOOD, config=load_config(preset="official", overrides=setting))) == set()


def test_an_official_run_passes() -> None:
    assert violations(GOOD) == ()
    assert status(check(GOOD)) == "PASSED"


def test_the_limits_themselves_are_within_the_rules() -> None:
    hour = load_config(overrides={"run.duration": "1h"})
    assert broken(replace(GOOD, error=0.30, config=hour, duration_s=3600.0)) == set()


@pytest.mark.parametrize(
    ("configured", "measured_s", "found"),
    [
        ("1h", 60.0, "3600 s configured, 60 s measured"),
        ("1h", 3599.999, "3600 s configured, 3599.999 s measured"),
        ("60s", 3600.0, "60 s configured, 3600 s measured"),
        ("60s", 60.0, "60 s"),
    ],
)
def test_the_configured_and_the_measured_duration_must_both_be_an_hour(
    configured: str, measured_s: float, found: str
) -> None:
    facts = replace(GOOD, config=load_config(overrides={"run.duration": configured}), duration_s=measured_s)
    assert [(item.rule, item.found) for item in violations(facts)] == [("duration", found)]
    assert status(check(facts)) == "UNOFFICIAL"


def test_status() -> None:
    def of(*groups: Group) -> str:
        return status(tuple(Checked("x", "y", "z", group, passed=False) for group in groups))

    assert of() == "PASSED"
    assert of("outcome") == "FAILED"
    assert of("setting", "outcome") == "UNOFFICIAL"
    assert of("integrity", "setting") == "FAILED"


def test_rule_names_are_unique() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
