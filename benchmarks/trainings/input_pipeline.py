"""The input pipeline: against a bare TensorFlow decode loop, and in front of the training step.

`python -m benchmarks.trainings.input_pipeline decode|step FOLDER ROUNDS` prints JSON;
benchmarks.training calls it.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from aiperf.config.dataset_manifest import read_dataset_manifest
from aiperf.config.datasets import find_dataset
from aiperf.config.frameworks import DEFAULT_FRAMEWORK, Pipeline
from aiperf.wire.messages import ArchitectureRequest
from benchmarks.measure import median_values
from benchmarks.trainings.training import trainer
from replica.trainer.data import open_source
from replica.trainer.data.contract import DataSource, RankShare
from replica.trainer.data.portable.crops import decoded
from replica.trainer.data.synthetic import SyntheticSource
from replica.trainer.frameworks import FRAMEWORKS
from workloads.data.records import read_images

BATCH = 32


def request_for(folder: Path, parallel: int) -> ArchitectureRequest:
    """Images from shards."""
    return ArchitectureRequest(
        architecture_path="",
        dataset="images",
        data_dir=str(folder),
        batch_size=BATCH,
        epochs=1,
        max_epochs=60,
        patience=9,
        seed=1,
        learning_rate=0.1,
        momentum=0.9,
        label_smoothing=0.1,
        precision="mixed_bfloat16",
        compile="auto",
        progress_interval_s=5.0,
        parallel_decode=parallel,
        shuffle_buffer=256,
    )


def source_for(folder: Path, parallel: int, kind: Pipeline = "tensorflow") -> DataSource:
    """The trainer's input pipeline."""
    request = request_for(folder, parallel)
    return open_source(request, find_dataset(request.dataset, request.data_dir), kind)


def bare_loop(folder: Path, parallel: int) -> Callable[[], int]:
    """Read and decode, nothing else."""
    files = sorted(str(path) for path in folder.glob("train-*"))
    features = {"image/encoded": tf.io.FixedLenFeature((), tf.string)}

    def decode(record: Any) -> Any:
        return tf.io.decode_jpeg(tf.io.parse_single_example(record, features)["image/encoded"], channels=3)

    def run() -> int:
        images = tf.data.TFRecordDataset(files).map(decode, num_parallel_calls=parallel)
        options = tf.data.Options()
        options.threading.private_threadpool_size = parallel
        return sum(1 for _ in images.with_options(options))

    return run


def pipeline(folder: Path, parallel: int, kind: Pipeline) -> Callable[[], int]:
    """The trainer's training images: shuffled, cropped, resized, flipped, normalised, batched."""
    source = source_for(folder, parallel, kind)
    return lambda: sum(int(images.shape[0]) for images, _ in source.train_batches(BATCH, 1, 1, RankShare()))


def decoder(folder: Path) -> Callable[[], int]:
    """Nothing but libjpeg-turbo, on whole images that lie in memory."""
    shards = read_dataset_manifest(folder).train.files
    encoded = [image for shard in shards for _, image in read_images(folder / shard.name, 0, shard.images)]

    def run() -> int:
        for image in encoded:
            decoded(image)
        return len(encoded)

    return run


def compare_decoding(folder: Path, rounds: int) -> dict[str, float]:
    """Images per second of CPU time, which is per core, of all threads of each candidate."""

    def speed(run: Callable[[], int]) -> float:
        began = time.process_time()
        return run() / (time.process_time() - began)

    candidates = {
        "bare_loop": bare_loop(folder, 1),
        "pipeline": pipeline(folder, 1, "tensorflow"),
        "without_tensorflow": pipeline(folder, 1, "numpy"),
        "decoder": decoder(folder),
    }
    return median_values({name: partial(speed, run) for name, run in candidates.items()}, rounds)


def compare_steps(folder: Path, rounds: int) -> dict[str, float]:
    """Images/s of the training on one thread, from shards and from images on the device.

    The other cores decode.
    """
    source, framework = source_for(folder, 2), FRAMEWORKS.load(DEFAULT_FRAMEWORK)()
    candidates = {
        "synthetic": trainer(framework, SyntheticSource(source.dataset), "mixed_bfloat16", BATCH),
        "shards": trainer(framework, source, "mixed_bfloat16", BATCH),
    }
    return median_values(candidates, rounds)


def main() -> int:
    """Print images/s by candidate."""
    what, folder, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print(json.dumps(compare_decoding(folder, rounds) if what == "decode" else compare_steps(folder, rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
