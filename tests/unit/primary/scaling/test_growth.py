"""What the runs of a series have more of, and what becomes of their work."""

from typing import Any

import pytest

from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import UsageError
from primary.scaling.runs import Growth


def config(**overrides: Any) -> RunConfig:
    return load_config(overrides={"run.dataset": "digits", **{k.replace("_", ".", 1): v for k, v in overrides.items()}})


SCIENCE = config(run_suite="science", science_instances=3, science_workloads=["hepcnn"], science_size="rehearsal")
BATCH = config(training_batch_size=96)


@pytest.mark.parametrize(
    ("options", "settings", "expected"),
    [
        (("weak", "replicas", None), BATCH, ("--replicas", "4")),
        (("weak", "replicas", None), SCIENCE, ("--replicas", "4", "--instances", "12")),
        (("strong", "replicas", None), SCIENCE, ("--replicas", "4")),
        (("weak", "ranks", None), BATCH, ("--set", "replica.ranks=4")),
        (("strong", "ranks", "rank"), BATCH, ("--set", "replica.ranks=4")),
        (("strong", "ranks", None), BATCH, ("--set", "replica.ranks=4", "--set", "training.batch_size=24")),
    ],
)
def test_a_run_has_more_machine_and_the_work_of_its_mode(
    options: tuple[Any, Any, Any], settings: RunConfig, expected: tuple[str, ...]
) -> None:
    member = Growth.chosen(*options, settings).member(4, settings)
    assert member.options == expected
    assert (member.folder, member.named) == (f"{options[1]}-0004", f"4 {options[1]}")


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        (("strong", "replicas", None), BATCH, "AutoML has no fixed work"),
        (("weak", "replicas", "rank"), BATCH, "it applies to --grow ranks"),
        (("weak", "ranks", "global"), BATCH, "take --mode strong"),
        (("strong", "ranks", None), config(), "state the batch of all ranks together"),
    ],
)
def test_a_growth_that_means_nothing_is_refused(
    options: tuple[Any, Any, Any], settings: RunConfig, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Growth.chosen(*options, settings)


def test_a_batch_that_cannot_be_divided_is_refused() -> None:
    growth = Growth.chosen("strong", "ranks", "global", BATCH)
    with pytest.raises(UsageError, match="96 images cannot be divided among 5 ranks"):
        growth.member(5, BATCH)


def test_a_series_notes_a_growth_that_is_not_the_usual_one() -> None:
    assert Growth.chosen("weak", "replicas", None, BATCH).words == ()
    assert Growth.chosen("strong", "ranks", None, BATCH).words == (
        "--mode",
        "strong",
        "--grow",
        "ranks",
        "--batch",
        "global",
    )
    assert Growth.chosen("strong", "replicas", None, SCIENCE).words == ("--mode", "strong", "--grow", "replicas")
