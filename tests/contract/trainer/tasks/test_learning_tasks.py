"""Detection, cells and generation learn what hand-made data show, on TensorFlow."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from replica.trainer.model.builder import set_up
from replica.trainer.tasks import TASKS, Task
from tests.support.trainings.tasks import SMALL, Array, Batch, blobs, half_labelled, rectangles
from workloads.settings import detection, generation


class Trainer:
    """Updates every part by the gradient of its own loss, all from one forward pass."""

    def __init__(self, task: Task, optimisers: Sequence[Any]) -> None:
        self._task = task
        self._optimisers = optimisers
        for optimiser, part in zip(optimisers, task.parts, strict=True):
            optimiser.build(part.variables)
        signature = [tf.TensorSpec((None, *shape), tf.float32) for shape in (task.input_shape, task.target_shape)]
        self.step = tf.function(self._step, input_signature=signature)
        self._rows = tf.function(task.rows, input_signature=signature)

    def _step(self, inputs: Any, targets: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            means = [tf.reduce_mean(loss) for loss in self._task.losses(inputs, targets)]
        parts = self._task.parts
        gradients = [
            tape.gradient(mean, [variable.value for variable in part.variables])
            for mean, part in zip(means, parts, strict=True)
        ]
        for optimiser, own, part in zip(self._optimisers, gradients, parts, strict=True):
            optimiser.apply(own, part.variables)
        return tf.stack(means)

    def epoch(self, batch: Batch, size: int, rng: np.random.Generator) -> Any:
        """Mean losses of an epoch in random order."""
        order = rng.permutation(len(batch[0]))
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        return np.mean([self.step(batch[0][part], batch[1][part]).numpy() for part in parts], axis=0)

    def measures(self, batch: Batch) -> dict[str, float]:
        return self._task.measures(self._rows(*batch).numpy())


def detector(settings: detection.DetectionSettings, steps: int) -> Trainer:
    set_up("float32", seed=1)
    schedule = keras.optimizers.schedules.CosineDecay(0.0, steps - 40, warmup_target=0.02, warmup_steps=40)
    optimiser = keras.optimizers.SGD(schedule, momentum=0.9, global_clipnorm=5.0)
    return Trainer(TASKS.load("detection")(settings), [optimiser])


def test_bright_rectangles_are_found_and_told_apart() -> None:
    settings = replace(detection.REHEARSAL, image=(64, 96))
    trained, unseen = rectangles(settings, 160, seed=1), rectangles(settings, 24, seed=2)
    rng = np.random.default_rng(3)
    trainer = detector(settings, steps=5 * 40)
    before = trainer.measures(unseen)
    losses = []
    for _ in range(5):
        trained[1][:, -1, 0] = rng.random(160)
        losses.append(trainer.epoch(trained, 4, rng)[0])
    after = trainer.measures(unseen)
    assert before["map@0.5"] < 0.1
    assert losses[-1] < 0.8 * losses[0]
    assert after["map@0.5"] > 0.5
    assert after["map@0.1"] >= after["map@0.5"]


def cells(trained: Batch, unseen: Batch) -> dict[str, float]:
    """Measures after a training of cells."""
    set_up("float32", seed=1)
    optimiser = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.003, 10 * 20))
    trainer = Trainer(TASKS.load("semi_supervised")(SMALL["semi_supervised"]), [optimiser])
    before = trainer.measures(unseen)
    assert before["map@0.1"] < 0.1
    rng = np.random.default_rng(3)
    for _ in range(10):
        trainer.epoch(trained, 8, rng)
    after = trainer.measures(unseen)
    assert after["reconstruction_error"] < 0.8 * before["reconstruction_error"]
    return after


def test_cells_find_rectangles_though_every_second_image_has_no_labels() -> None:
    settings = SMALL["semi_supervised"]
    trained, unseen = half_labelled(settings, 160, seed=1), rectangles(settings, 24, seed=2)
    found = cells(trained, unseen)
    assert found["map@0.1"] > 0.5
    assert found["map@0.1"] >= found["map@0.5"]
    # Boxes of other images teach nothing.
    rng = np.random.default_rng(4)
    mixed = trained[1].copy()
    mixed[::2] = rng.permutation(mixed[::2])
    assert cells((trained[0], mixed), unseen)["map@0.1"] < 0.3


def generated(settings: generation.GenerationSettings, fields: Array, unseen: Batch) -> tuple[Any, Any]:
    """Measures before and after a training on fields, against others that were not seen."""
    set_up("float32", seed=1)
    optimisers = [keras.optimizers.Adam(4e-4, beta_1=0.5) for _ in range(2)]
    trainer = Trainer(TASKS.load("generation")(settings), optimisers)
    rng = np.random.default_rng(3)
    before = trainer.measures(unseen)
    targets = np.zeros((len(fields), *settings.target_shape), np.float32)
    for _ in range(16):
        targets[:, :-1] = rng.normal(size=targets[:, :-1].shape)
        losses = trainer.epoch((fields, targets), 32, rng)
        assert np.isfinite(losses).all()
    return before, trainer.measures(unseen)


def test_blobs_are_generated_with_their_spectrum_and_their_pixels() -> None:
    settings = replace(generation.REHEARSAL, axes=2)
    (fields, _), unseen = blobs(settings, 512, seed=1), blobs(settings, 256, seed=2)
    before, after = generated(settings, fields, unseen)
    assert before["spectrum"] > 1
    assert before["ks"] > 0.5
    assert after["spectrum"] < 0.35
    assert after["ks"] < 0.45
    # The same pixels in another order have no blobs, and teach none.
    rng = np.random.default_rng(4)
    mixed = rng.permuted(fields.reshape(len(fields), -1), axis=1).reshape(fields.shape)
    _, of_mixed = generated(settings, mixed, unseen)
    assert of_mixed["spectrum"] > 0.4
