"""Recorded rows against repeated ones, and rows that cannot be those of a training."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiperf.facts import EpochFacts
from aiperf.run_directory.step_evidence import rows_of
from referee.audit.comparison import (
    TOLERANCES,
    correct_tolerance,
    difference_to_known,
    first_difference,
    problems_of_rows,
    relative,
    tolerance_of,
)

CPU = TOLERANCES["float32"]
STEPS, BATCH, IMAGES = 23, 64, 1437


def rows() -> NDArray[Any]:
    steps = np.arange(STEPS)
    return rows_of(1, 2.5 * 0.97**steps, 4.0 * 0.9**steps)


def facts(loss: float) -> EpochFacts:
    return EpochFacts(
        epoch=1, images_trained=IMAGES, images_evaluated=360, loss=loss, validation_loss=1.0, learning_rate=0.1
    )


def mean_of(found: NDArray[Any]) -> float:
    images = np.array([BATCH] * (STEPS - 1) + [IMAGES - BATCH * (STEPS - 1)])
    return float((found["loss"] * images).sum() / IMAGES)


def test_differences_by_rounding_pass_and_grow_with_the_steps() -> None:
    again = rows()
    again["loss"] *= 1 + 1e-6 * 1.7 ** np.arange(STEPS)
    assert first_difference(rows(), again, CPU) == ""


@pytest.mark.parametrize(("name", "step"), [("loss", 1), ("gradient_norm", 1), ("loss", 2)])
def test_another_computation_is_found_at_its_first_step(name: str, step: int) -> None:
    again = rows()
    again[name][step - 1] *= 1.01
    assert first_difference(rows(), again, CPU).startswith(f"step {step}: {name}")


def test_later_steps_are_compared_by_their_mean() -> None:
    again = rows()
    again["loss"][10] *= 1.5
    assert first_difference(rows(), again, CPU) == ""
    again["loss"][4:] *= 1.5
    assert "mean loss from step 4 on" in first_difference(rows(), again, CPU)


def test_the_largest_differences_that_honest_repetitions_had_pass() -> None:
    again = rows()
    again["loss"][:6] *= 1 + np.array([6.6e-7, 2.2e-4, 3.9e-2, 0.17, 0.45, 0.3])
    again["gradient_norm"][:6] *= 1 - np.array([3.2e-5, 1.3e-2, 0.1, 0.09, 0.21, 0.3])
    assert first_difference(rows(), again, CPU) == ""


def test_a_missing_step_and_a_loss_that_is_not_a_number_are_differences() -> None:
    assert first_difference(rows(), rows()[:-1], CPU) == "22 steps instead of 23"
    again = rows()
    again["loss"][1] = np.nan
    assert first_difference(rows(), again, CPU).startswith("step 2: loss")
    again = rows()
    again["loss"][12] = np.nan
    assert "mean loss" in first_difference(rows(), again, CPU)


def test_complete_rows_of_an_epoch_have_no_problem() -> None:
    assert problems_of_rows(rows(), rows(), BATCH, facts(mean_of(rows()))) == []


def test_each_problem_of_rows_is_named() -> None:
    loss = mean_of(rows())
    assert "the images need steps 1 to 23" in problems_of_rows(rows()[:-1], rows(), BATCH, facts(loss))[0]
    assert "mean loss" in problems_of_rows(rows(), rows(), BATCH, facts(loss * 0.98))[0]
    copied = np.concatenate([rows(), rows_of(2, rows()["loss"], rows()["gradient_norm"])])
    assert "occur twice" in problems_of_rows(rows(), copied, BATCH, facts(loss))[0]
    still = rows()
    still["gradient_norm"] = 0
    assert "no gradient" in problems_of_rows(still, still, BATCH, facts(loss))[0]
    broken = rows()
    broken["loss"][3] = np.nan
    assert "not a number" in problems_of_rows(broken, broken, BATCH, facts(loss))[0]


@pytest.mark.parametrize(
    ("correct", "images", "known", "of_known", "accused"),
    [
        (347, 360, 1385, 1437, False),
        (347, 360, 1360, 1437, False),
        (360, 360, 360, 360, False),
        (357, 360, 353, 360, False),
        (40, 360, 30, 360, False),
        (37_600, 50_000, 37_400, 50_000, False),
        (37_600, 50_000, 43_000, 50_000, False),
        (360, 360, 1385, 1437, True),
        (45_000, 50_000, 40_000, 50_000, True),
        (50_000, 50_000, 49_800, 50_000, True),
    ],
)
def test_weights_that_know_validation_images_better_than_those_of_training_are_found(
    correct: int, images: int, known: int, of_known: int, accused: bool
) -> None:
    found = difference_to_known(correct, images, known, of_known)
    assert bool(found) == accused, found


def test_chance_accuses_nobody() -> None:
    """Of 20,000 networks that know both equally well, drawn with a fixed seed."""
    rng = np.random.default_rng(1)
    rates = rng.uniform(0.5, 1, 20_000)
    drawn = zip(rng.binomial(360, rates), rng.binomial(360, rates), strict=True)
    assert not [pair for pair in drawn if difference_to_known(int(pair[0]), 360, int(pair[1]), 360)]


def test_tolerances_are_by_arithmetic_and_device() -> None:
    assert tolerance_of("float32", on_cpus=True).loss < tolerance_of("float32", on_cpus=False).loss
    assert tolerance_of("float32", on_cpus=False).loss < tolerance_of("mixed_bfloat16", on_cpus=False).loss
    assert tolerance_of("mixed_bfloat16", on_cpus=True).loss < tolerance_of("mixed_bfloat16", on_cpus=False).loss
    assert tolerance_of("mixed_float16", on_cpus=True) == tolerance_of("mixed_float16", on_cpus=False)
    assert tolerance_of("another", on_cpus=True) == tolerance_of("mixed_bfloat16", on_cpus=False)


MEASURED_IN_BFLOAT16 = ((2.3e-3, 9.8e-3), (5.2e-2, 7.8e-2))
"""Largest differences of loss and norm at steps 1 and 2 (`benchmarks.audit.steps`)."""

LEAST_WITHOUT_UPDATES = 0.29
"""Least difference of the loss of step 2 to that of a training without updates, in bfloat16."""


def test_the_tolerances_of_bfloat16_have_a_margin_above_what_honest_trainings_differ_by() -> None:
    tolerance = tolerance_of("mixed_bfloat16", on_cpus=True)
    for step, measured in enumerate(MEASURED_IN_BFLOAT16, start=1):
        for allowed, largest in zip(tolerance.at(step), measured, strict=True):
            assert 4 * largest < allowed, step
    assert tolerance.at(2)[0] < LEAST_WITHOUT_UPDATES, "the loss of step 2 shows the update"
    assert [correct_tolerance(images) for images in (360, 50_000)] == [1, 100]


def test_the_relative_difference() -> None:
    assert (relative(0.0, 0.0), relative(1.0, 0.5), relative(0.0, 1.0)) == (0.0, 0.5, 1.0)
    assert not relative(float("nan"), 1.0) <= 1.0
