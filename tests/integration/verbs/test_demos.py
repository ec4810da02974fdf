"""`aiperf search` and `aiperf hpo`, and rounds with tuned hyperparameters in a whole run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.hand_made import SIMULATED, aiperf
from tests.support.runs import report, run_until


def steps(*arguments: str | int) -> list[dict[str, Any]]:
    result = aiperf(*arguments, "--format", "json")
    assert result.returncode == 0, result.stderr
    return list(json.loads(result.stdout))


def test_search_prints_its_steps_and_repeats_them() -> None:
    arguments = ("search", "--steps", 3, "--history", 5, "--objective", "mixture", "--seed", 4)
    found = steps(*arguments)
    assert [set(step) for step in found] == [{"seconds", "architecture", "operations", "morphs", "value", "best"}] * 3
    assert len({step["architecture"] for step in found}) == 3
    bests = [step["best"] for step in found]
    assert bests == sorted(bests)
    assert all(step["best"] >= step["value"] and step["seconds"] > 0 for step in found)
    assert [step["architecture"] for step in steps(*arguments)] == [step["architecture"] for step in found]
    table = aiperf(*arguments, "--strategy", "random")
    assert "CPU s" in table.stdout


def test_hpo_prints_its_steps_and_repeats_them() -> None:
    arguments = ("hpo", "--steps", 6, "--objective", "rosenbrock", "--strategy", "tpe", "--seed", 2)
    found = steps(*arguments)
    assert [set(step) for step in found] == [{"point", "value", "best"}] * 6
    assert found == steps(*arguments)
    assert "kernel_size" in aiperf("hpo", "--steps", 2).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "--objective", "luck"], "--objective is 'luck'; known: depth, peak, mixture"),
        (["search", "--strategy", "grid"], "--strategy is 'grid'; known: bayesian, random"),
        (["search", "--steps", "0"], "'0' is not a whole number of at least 1"),
        (["search", "--history", "-1"], "'-1' is not a whole number of at least 0"),
        (["hpo", "--objective", "luck"], "--objective is 'luck'; known: sphere, rosenbrock, rastrigin"),
        (["hpo", "--strategy", "grid"], "--strategy is 'grid'; known: tpe, random"),
        (["hpo", "--steps", "few"], "argument --steps: 'few' is not a whole number of at least 1"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    result = aiperf(*arguments)
    assert (result.returncode, message in result.stderr, "Traceback" in result.stderr) == (2, True, False)


def test_a_run_tunes_hyperparameters_of_a_space_of_its_own(tmp_path: Path) -> None:
    space = tmp_path / "space.json"
    space.write_text(
        json.dumps(
            {
                "batch_size": {"_type": "choice", "_value": [20, 40]},
                "learning_rate": {"_type": "loguniform", "_value": [0.01, 0.2]},
            }
        )
    )

    def trained(output: Path) -> list[dict[str, Any]]:
        return [trial for trial in report(output)["trials"] if trial["epochs"] > 0]

    output, _, result = run_until(
        tmp_path / "run",
        18,
        lambda output: len(trained(output)) >= 5,
        "--set",
        f"search.space={space}",
        "--set",
        "search.hpo_first_round=2",
        "--set",
        "search.hpo_points=2",
        "--set",
        "training.max_epochs=4",
    )
    assert result.returncode == 0, result.stderr
    assert (output / "hyperparameters.json").read_text() == space.read_text()
    trials = trained(output)
    assert [(trial["round"], trial["point"], trial["base"]) for trial in trials[:5]] == [
        (1, 0, None),
        (2, 0, None),
        (2, 1, 2),
        (2, 2, 2),
        (3, 0, None),
    ]
    for trial in trials[2:4]:
        assert trial["architecture"] == trials[1]["architecture"], "this space has no kernel size"
        assert trial["hyperparameters"]["batch_size"] in (20, 40)
        assert 0.01 <= trial["hyperparameters"]["learning_rate"] <= 0.2
        assert trial["hyperparameters"]["momentum"] == 0.9
    completed = [trial for trial in trials if trial["state"] == "completed"]
    predicted = [trial["predicted_accuracy"] for trial in completed if trial["round"] <= 3]
    assert all(value is not None for value in predicted)
    assert all(trial["predicted_accuracy"] is None for trial in completed if trial["round"] > 3)
    assert {row["name"] for row in report(output)["hyperparameters"]} >= {"batch_size", "learning_rate"}


def test_a_wrong_space_starts_nothing(tmp_path: Path) -> None:
    space = tmp_path / "space.json"
    space.write_text('{"batch_size": {"_type": "choice"}, "speed": {"_type": "choice", "_value": [1]}}')
    result = aiperf("run", *SIMULATED, "--output", tmp_path / "run", "--set", f"search.space={space}")
    assert result.returncode == 2
    assert "2 problem(s)" in result.stderr
    assert "speed: unknown hyperparameter" in result.stderr
    assert not (tmp_path / "run").exists()
