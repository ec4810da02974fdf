"""One suite for every registered task, on every framework."""

from functools import cache
from typing import Any

import keras
import numpy as np
import pytest

from replica.trainer.frameworks import FRAMEWORKS
from replica.trainer.model.builder import set_up
from replica.trainer.tasks import TASKS
from tests.support.trainings.tasks import SMALL, Compiled, examples

EVERYWHERE = pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
EACH = pytest.mark.parametrize("name", list(TASKS))


@cache
def compiled(name: str) -> Compiled:
    """One for all tests: compiling takes the longest. Trainable variables stay as they are."""
    set_up("float32", seed=3)
    return Compiled(TASKS.load(name)(SMALL[name]))


def values_of(task: Any) -> list[Any]:
    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in task.network.variables]


def moved(task: Any, before: list[Any]) -> list[Any]:
    now = zip(task.network.variables, before, values_of(task), strict=True)
    return [variable for variable, old, new in now if np.any(old != new)]


@EACH
@EVERYWHERE
def test_every_part_has_a_finite_loss_of_each_example(trains_on: str, name: str) -> None:
    made, batch = compiled(name), examples(name, 3)
    assert batch[0].shape[1:] == tuple(made.task.input_shape)
    assert batch[1].shape[1:] == tuple(made.task.target_shape)
    losses, _ = made.step(batch)
    assert len(losses) == len(made.task.parts)
    assert all(loss.shape == (3,) and loss.dtype == np.float32 and np.isfinite(loss).all() for loss in losses)
    # Nothing is drawn within a step: what is random comes with the targets.
    again, _ = made.step(batch)
    for one, other in zip(losses, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


@EACH
@EVERYWHERE
def test_a_loss_of_an_example_does_not_depend_on_the_order_of_the_batch(trains_on: str, name: str) -> None:
    made, (inputs, targets) = compiled(name), examples(name, 3)
    losses, _ = made.step((inputs, targets))
    order = np.array([2, 0, 1])
    turned, _ = made.step((inputs[order], targets[order]))
    for one, other in zip(losses, turned, strict=True):
        np.testing.assert_allclose(other, one[order], rtol=1e-3)
        assert one.std() > 0


@EACH
@EVERYWHERE
def test_each_variable_is_in_one_part_whose_loss_moves_it(trains_on: str, name: str) -> None:
    made = compiled(name)
    every = made.task.network.trainable_variables
    owners = [{id(variable) for variable in part.variables} for part in made.task.parts]
    assert sorted(map(id, every)) == sorted(each for owner in owners for each in owner)
    _, gradients = made.step(examples(name, 3))
    unmoved = []
    for owner, row in zip(owners, gradients, strict=True):
        for variable, gradient in zip(every, row, strict=True):
            if id(variable) in owner:
                assert gradient is not None, variable.path
                assert gradient.shape == tuple(variable.shape), variable.path
                assert np.isfinite(gradient).all(), variable.path
                unmoved += [] if np.any(gradient) else [variable.path]
    # What is in front of a scale that starts at 0 moves as soon as that has moved: in a block at
    # most three kernels and two normalisations.
    scales = [v.path for v in every if v.path.endswith("gamma") and not np.any(keras.ops.convert_to_numpy(v))]
    assert len(unmoved) <= 7 * len(scales), unmoved


@EACH
@EVERYWHERE
def test_a_step_moves_the_moving_statistics_and_evaluation_nothing(trains_on: str, name: str) -> None:
    made, batch = compiled(name), examples(name, 3)
    before = values_of(made.task)
    made.rows(batch)
    assert moved(made.task, before) == []
    made.step(batch)
    normalised = any(variable.name == "moving_mean" for variable in made.task.network.variables)
    wanted = {"moving_mean", "moving_variance"} if normalised else set()
    assert {variable.name for variable in moved(made.task, before)} == wanted
    assert not any(variable.trainable for variable in moved(made.task, before))


@EACH
@EVERYWHERE
def test_rows_do_not_depend_on_the_batch_they_are_computed_in(trains_on: str, name: str) -> None:
    made, (inputs, targets) = compiled(name), examples(name, 4)
    whole = made.rows((inputs, targets))
    assert whole.shape == (4, made.task.columns)
    assert whole.dtype == np.float32
    assert np.isfinite(whole).all()
    halves = [made.rows((inputs[part], targets[part])) for part in (slice(0, 2), slice(2, 4))]
    # Detections of nearly one score may change places.
    np.testing.assert_allclose(np.sort(np.concatenate(halves)), np.sort(whole), rtol=1e-3, atol=1e-3)
    assert np.any(whole[0] != whole[1])


@EACH
@EVERYWHERE
def test_measures_do_not_depend_on_the_order_of_rows(trains_on: str, name: str) -> None:
    made = compiled(name)
    rows = np.concatenate([made.rows(examples(name, 4, seed)) for seed in (1, 2)])
    measures = made.task.measures(rows)
    assert measures
    assert all(np.isfinite(value) for value in measures.values())
    for order in ([5, 3, 7, 1, 0, 2, 6, 4], [1, 0, 3, 2, 5, 4, 7, 6]):
        assert made.task.measures(rows[order]) == pytest.approx(measures, rel=1e-12, abs=1e-12)


@EVERYWHERE
def test_half_a_batch_on_each_of_two_ranks_has_the_gradient_of_the_whole(trains_on: str) -> None:
    # Without batch normalisation nothing mixes the images of a rank.
    made, (inputs, targets) = compiled("semi_supervised"), examples("semi_supervised", 4)
    _, (whole,) = made.step((inputs, targets))
    halves = [made.step((inputs[part], targets[part]))[1][0] for part in (slice(0, 2), slice(2, 4))]
    for together, one, other in zip(whole, *halves, strict=True):
        assert together is not None and one is not None and other is not None
        np.testing.assert_allclose(together, (one + other) / 2, rtol=1e-3, atol=1e-5)


@EVERYWHERE
def test_images_without_labels_train_no_head(trains_on: str) -> None:
    made, (inputs, targets) = compiled("semi_supervised"), examples("semi_supervised", 4)
    heads = {"class", "object", "xy", "wh"}
    _, (gradients,) = made.step((inputs[1::2], targets[1::2]))
    moving = set()
    for variable, gradient in zip(made.task.network.trainable_variables, gradients, strict=True):
        if gradient is not None and np.any(gradient):
            moving.add(variable.path.split("/")[0])
    assert not moving & heads
    assert len(moving) == 6, "three convolutions and three transposed ones"
    # Nor do their boxes count, were any left in them.
    left = targets.copy()
    left[1::2, :-1] = targets[::2, :-1]
    (one,), _ = made.step((inputs, targets))
    (other,), _ = made.step((inputs, left))
    np.testing.assert_allclose(one, other, rtol=1e-6)
