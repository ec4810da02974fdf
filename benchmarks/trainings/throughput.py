"""Training steps side by side: the trainer's, and a bare keras.Model.fit.

`python -m benchmarks.trainings.throughput SIDE BATCH STEPS ROUNDS THREADS` prints images/s as JSON;
benchmarks.training calls it.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from aiperf.config.datasets import Dataset
from aiperf.config.frameworks import DEFAULT_FRAMEWORK
from benchmarks.measure import median_values
from benchmarks.trainings.training import trainer
from replica.trainer.data.contract import DataSource
from replica.trainer.data.digits import DigitsSource
from replica.trainer.data.synthetic import SyntheticSource
from replica.trainer.frameworks import FRAMEWORKS


def fit(source: DataSource, precision: str, batch: int) -> Callable[[], float]:
    """As `trainer`, for a bare fit of the same images; without XLA, which is slower on CPUs."""
    keras.mixed_precision.set_global_policy(precision)
    facts = source.dataset
    shape = (facts.image_size, facts.image_size, 3)
    model = keras.applications.ResNet50(weights=None, input_shape=shape, classes=facts.classes)
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
        jit_compile=False,
    )
    batches = _bare_batches(source, batch)
    spent: list[float] = []
    began: list[float] = []
    callback = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: began.append(time.perf_counter()),
        on_epoch_end=lambda epoch, logs: spent.append(time.perf_counter() - began[-1]),
    )

    def run() -> float:
        model.fit(batches, epochs=1, verbose=0, callbacks=[callback])
        return float(facts.train_images / spent[-1])

    return run


def _bare_batches(source: DataSource, batch: int) -> Any:
    if isinstance(source, DigitsSource):
        images, labels = source.train
        return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images)).batch(batch).prefetch(2)
    facts = source.dataset
    images = tf.random.normal((batch, facts.image_size, facts.image_size, 3))
    labels = tf.one_hot(tf.range(batch) % facts.classes, facts.classes)
    return tf.data.Dataset.from_tensors((images, labels)).repeat(facts.train_images // batch)


def compare(side: int, batch: int, steps: int, rounds: int) -> dict[str, float]:
    """Medians of images/s; candidates take turns."""
    classes = 1000 if side == 224 else 10
    facts = Dataset("synthetic", steps * batch, batch, side, classes, batch, 60)
    source: DataSource = DigitsSource() if side == 32 else SyntheticSource(facts)
    framework = FRAMEWORKS.load(DEFAULT_FRAMEWORK)()
    candidates = {
        "fit_float32": fit(source, "float32", batch),
        "trainer_float32": trainer(framework, source, "float32", batch),
        "trainer_bfloat16": trainer(framework, source, "mixed_bfloat16", batch),
    }
    return median_values(candidates, rounds)


def main() -> int:
    """Print images/s by candidate."""
    side, batch, steps, rounds, threads = map(int, sys.argv[1:6])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    print(json.dumps(compare(side, batch, steps, rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
