"""Synthetic images of invented classes in ImageNet's format, which a network can learn.

A class is a grating with an angle, a wavelength and colours. Position, contrast and noise vary from
image to image.
"""

from collections.abc import Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import SPLITS, DatasetManifest, Split
from aiperf.errors import DatasetError
from aiperf.processes import spawned
from workloads.datasets.content import About, FileContent, write_description
from workloads.datasets.encoding import encode_jpeg
from workloads.datasets.prepare import Progress
from workloads.datasets.shards import Image, shard_name, write_shard

JPEG_QUALITY = 90
NOISE = 24.0
"""Standard deviation of the noise, of 255."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of images: numbers, sizes and seed."""

    images: dict[Split, int]
    shards: dict[Split, int]
    classes: int
    height: int
    width: int
    image_size: int
    seed: int


@dataclass(frozen=True, slots=True)
class SyntheticShard:
    """One shard to make: images `start` to `stop` of its split."""

    path: Path
    split: Split
    start: int
    stop: int
    recipe: Recipe


def synthesize(recipe: Recipe, output: Path, report: Progress, workers: int) -> DatasetManifest:
    """Write all shards and dataset.json. Raises DatasetError if the directory is not empty."""
    if output.exists() and any(output.iterdir()):
        raise DatasetError(f"{output}: is not empty; name a new folder")
    output.mkdir(parents=True, exist_ok=True)
    jobs = [job for split in SPLITS for job in _shards(recipe, split, output)]
    contents: dict[str, FileContent] = {}
    with spawned(min(workers, len(jobs))) as pool:
        for future in as_completed([pool.submit(write_synthetic, job) for job in jobs]):
            content = future.result()
            contents[content.entry.name] = content
            report(len(contents), len(jobs))
    names = tuple(f"grating {number}" for number in range(1, recipe.classes + 1))
    about = About(f"synthetic, seed {recipe.seed}", recipe.image_size, names)
    parts = {split: [contents[job.path.name] for job in jobs if job.split == split] for split in SPLITS}
    return write_description(output, "tfrecord", about, parts)


def _shards(recipe: Recipe, split: Split, output: Path) -> Iterator[SyntheticShard]:
    total, count = recipe.images[split], recipe.shards[split]
    for number in range(count):
        path = output / shard_name(split, number, count)
        yield SyntheticShard(path, split, total * number // count, total * (number + 1) // count, recipe)


def write_synthetic(job: SyntheticShard) -> FileContent:
    """Draw the images of one shard and write it."""

    def images() -> Iterator[Image]:
        for index in range(job.start, job.stop):
            # In turn: every class is in every shard, and neighbours differ.
            label = index % job.recipe.classes + 1
            stream = 0 if job.split == "train" else 1
            pixels = draw(job.recipe, label, np.random.default_rng((job.recipe.seed, stream, index)))
            encoded = encode_jpeg(pixels, JPEG_QUALITY)
            yield Image(f"{job.split}_{index:08d}.JPEG", label, encoded)

    return write_shard(job.path, images())


def draw(recipe: Recipe, label: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw one image of a class, (height, width, 3)."""
    # The class alone decides these, so that training and validation images look alike.
    fixed = np.random.default_rng((recipe.seed, 7, label))
    angle, waves = fixed.uniform(0, np.pi), fixed.uniform(4, 16)
    light, dark = fixed.uniform(128, 255, 3), fixed.uniform(0, 128, 3)
    y, x = np.mgrid[0 : recipe.height, 0 : recipe.width] / min(recipe.height, recipe.width)
    phase = rng.uniform(0, 2 * np.pi)
    wave = np.sin(2 * np.pi * waves * (x * np.cos(angle) + y * np.sin(angle)) + phase)
    mix = (0.5 + 0.5 * rng.uniform(0.6, 1.0) * wave)[..., None]
    pixels = dark + (light - dark) * mix + rng.normal(0, NOISE, (recipe.height, recipe.width, 3))
    clipped: NDArray[np.uint8] = np.clip(pixels, 0, 255).astype(np.uint8)
    return clipped
