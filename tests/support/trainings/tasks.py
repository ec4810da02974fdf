"""Small examples of every task, and a training step's gradients on every framework."""

from dataclasses import replace
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import (
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    Input,
    InputArray,
    LeakyReLU,
    ReLU,
    Softmax,
    Tanh,
)
from replica.trainer.tasks.contract import Task
from workloads.settings import detection, generation, semi_supervised
from workloads.settings.single import OneNetwork

Array = NDArray[np.float32]
Batch = tuple[Array, Array]

SIGNAL = Architecture(
    (
        Node("in", Input(8, 8, 3)),
        Node("conv", Conv(4), ("in",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("relu", ReLU(), ("bn",)),
        Node("gap", GlobalAveragePool(), ("relu",)),
        Node("fc", Dense(2), ("gap",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)
UNIVERSE = Architecture(
    (
        Node("in", InputArray((6, 6, 6, 2))),
        Node("conv", Conv(4, (3, 3, 3), (2, 2, 2), dilation=(1, 1, 1)), ("in",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("relu", LeakyReLU(0.3), ("bn",)),
        Node("flat", Flatten(), ("relu",)),
        Node("fc", Dense(4), ("flat",)),
        Node("tanh", Tanh(), ("fc",)),
    )
)

SMALL: dict[str, Any] = {
    "classification": OneNetwork(lambda: SIGNAL),
    "regression": OneNetwork(lambda: UNIVERSE),
    "detection": replace(detection.REHEARSAL, image=(48, 64), proposals_before=128),
    "generation": replace(generation.REHEARSAL, size=8),
    "semi_supervised": semi_supervised.SemiSupervisedSettings((48, 64), encoder=((12, 5), (16, 5), (24, 4))),
}
"""Settings of each task. A task that is missing here fails every test of the suite."""


def events(settings: OneNetwork, images: int, seed: int) -> Batch:
    """Noise, of either class in turn, kept by a selection or not."""
    rng = np.random.default_rng(seed)
    targets = np.zeros((images, 3), np.float32)
    targets[np.arange(images), np.arange(images) % 2] = 1
    targets[:, 2] = rng.integers(2, size=images)
    return rng.normal(size=(images, *settings.build().input_shape)).astype(np.float32), targets


def universes(settings: OneNetwork, cubes: int, seed: int) -> Batch:
    """Noise with four numbers in [-1, 1]."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(cubes, *settings.build().input_shape))
    return inputs.astype(np.float32), rng.uniform(-1, 1, (cubes, 4)).astype(np.float32)


Boxed = detection.DetectionSettings | semi_supervised.SemiSupervisedSettings
"""Settings of tasks that find boxes."""


def boxes_of(rng: np.random.Generator, settings: Boxed, most: int) -> Array:
    """Targets of one image: up to `most` boxes of 10 to 28 pixels, and a draw."""
    target = np.full(settings.target_shape, -1, np.float32)
    height, width = settings.image
    for row in range(rng.integers(1, most + 1)):
        sides = rng.integers(10, 29, 2)
        corner = rng.integers(0, (height - sides[0] + 1, width - sides[1] + 1))
        target[row] = (*corner, *(corner + sides), rng.integers(settings.classes))
    target[-1, 0] = rng.random()
    return target


def rectangles(settings: Boxed, images: int, seed: int, most: int = 3) -> Batch:
    """Noise with bright rectangles; the channels that are bright tell the class."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 0.3, (images, *settings.image, settings.channels)).astype(np.float32)
    targets = np.stack([boxes_of(rng, settings, most) for _ in range(images)])
    share = settings.channels // settings.classes
    for image, target in zip(inputs, targets, strict=True):
        for row in target[:-1][target[:-1, 4] >= 0].astype(int):
            image[row[0] : row[2], row[1] : row[3], row[4] * share : (row[4] + 1) * share] += 1
    return inputs, targets


def half_labelled(settings: semi_supervised.SemiSupervisedSettings, images: int, seed: int) -> Batch:
    """Rectangles; every second image has no labels."""
    inputs, targets = rectangles(settings, images, seed)
    targets[:, -1, 0] = 1
    targets[1::2] = -1
    targets[1::2, -1, 0] = 0
    return inputs, targets


def blobs(settings: generation.GenerationSettings, fields: int, seed: int) -> Batch:
    """Round bright blobs at random places of a dark ground with some noise, in [-1, 1]."""
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*[np.arange(settings.size)] * settings.axes, indexing="ij")
    found = np.full((fields, *axes[0].shape), 0.0)
    for _ in range(2):
        centres = rng.uniform(0, settings.size, (fields, settings.axes, *[1] * settings.axes))
        found += np.exp(-np.sum((np.stack(axes)[None] - centres) ** 2, axis=1) / (settings.size / 4) ** 2 * 2)
    targets = np.zeros((fields, *settings.target_shape), np.float32)
    targets[:, :-1] = rng.normal(size=(fields, settings.latent))
    found = np.minimum(found, 1.0) * 1.4 - 0.8 + rng.normal(0, 0.1, found.shape)
    return np.clip(found, -1, 1).astype(np.float32)[..., None], targets


def examples(name: str, count: int, seed: int = 1) -> Batch:
    """Examples of a task at its settings in `SMALL`."""
    makers: Any = {
        "classification": events,
        "regression": universes,
        "detection": rectangles,
        "generation": blobs,
        "semi_supervised": half_labelled,
    }
    batch: Batch = makers[name](SMALL[name], count, seed)
    return batch


class Compiled:
    """A training step and the rows of a task, compiled by the framework of this process.

    A step gives the losses, and for each loss the gradients of its mean for every trainable
    variable of the task's network: None, or on JAX zeros, if the loss does not depend on it.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        make: Any = {"tensorflow": _on_tensorflow, "torch": _on_torch, "jax": _on_jax}[keras.backend.backend()]
        self._step, self._rows = make(task)

    def step(self, batch: Batch) -> tuple[list[Array], list[list[Array | None]]]:
        """Losses and gradients of a training step; moving statistics follow."""
        losses, gradients = self._step(*batch)
        found = [[None if each is None else _array(each) for each in row] for row in gradients]
        return list(map(_array, losses)), found

    def rows(self, batch: Batch) -> Array:
        """Rows of an evaluation."""
        return _array(self._rows(*batch))


def _array(tensor: Any) -> Array:
    found: Array = np.array(keras.ops.convert_to_numpy(tensor))
    return found


def _on_tensorflow(task: Task) -> Any:
    import tensorflow as tf

    shapes = (task.input_shape, task.target_shape)
    compiled = tf.function(input_signature=[tf.TensorSpec((None, *shape), tf.float32) for shape in shapes])

    def step(inputs: Any, targets: Any) -> Any:
        variables = [variable.value for variable in task.network.trainable_variables]
        with tf.GradientTape(persistent=True) as tape:
            losses = task.losses(inputs, targets)
            means = [tf.reduce_mean(loss) for loss in losses]
        return losses, [tape.gradient(mean, variables) for mean in means]

    return compiled(step), compiled(task.rows)


def _on_torch(task: Task) -> Any:
    import torch

    values = [variable.value for variable in task.network.trainable_variables]

    def step(*batch: Any) -> Any:
        losses = task.losses(*map(torch.as_tensor, batch))
        return losses, [
            torch.autograd.grad(loss.mean(), values, retain_graph=True, allow_unused=True) for loss in losses
        ]

    def rows(*batch: Any) -> Any:
        with torch.no_grad():
            return task.rows(*map(torch.as_tensor, batch))

    return step, rows


def _on_jax(task: Task) -> Any:
    import jax

    trained = list(task.network.trainable_variables)
    own = {id(variable) for variable in trained}
    others = [variable for variable in task.network.variables if id(variable) not in own]

    def scope_of(values: Any, rest: Any) -> Any:
        known = [*zip(trained, values, strict=True), *zip(others, rest, strict=True)]
        return keras.StatelessScope(state_mapping=known)

    def losses_of(values: Any, rest: Any, inputs: Any, targets: Any) -> Any:
        with scope_of(values, rest) as scope:
            losses = task.losses(inputs, targets)
        after = [scope.get_current_value(variable) for variable in others]
        return tuple(loss.mean() for loss in losses), (losses, after)

    def rows_of(values: Any, rest: Any, inputs: Any, targets: Any) -> Any:
        with scope_of(values, rest):
            return task.rows(inputs, targets)

    def gradients_of(values: Any, *rest: Any) -> Any:
        means, pull_back, more = jax.vjp(lambda own: losses_of(own, *rest), values, has_aux=True)
        ones = np.eye(len(means), dtype=np.float32)
        return [pull_back(tuple(one))[0] for one in ones], more

    gradients = jax.jit(gradients_of)
    compiled_rows = jax.jit(rows_of)

    def state() -> Any:
        return [variable.value for variable in trained], [variable.value for variable in others]

    def step(*batch: Any) -> Any:
        rows, (losses, after) = gradients(*state(), *batch)
        for variable, value in zip(others, after, strict=True):
            variable.assign(value)
        return losses, rows

    return step, lambda *batch: compiled_rows(*state(), *batch)
