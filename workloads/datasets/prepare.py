"""Shards made from a source: in parallel, resumable, with a checksum of every file."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from pydantic import Base64Bytes, BaseModel, ValidationError

from aiperf.config.dataset_manifest import INDEX_LIMITS, SPLITS, DatasetManifest, FileEntry, Split
from aiperf.config.fingerprints import ENTRY_BYTES
from aiperf.errors import DatasetError
from aiperf.untrusted.reading import read_outside
from workloads.datasets.content import About, FileContent, write_description
from workloads.datasets.encoding import as_rgb_jpeg
from workloads.datasets.naming import shard_name
from workloads.datasets.shards import Image, write_shard
from workloads.datasets.sources import ImageSource, Place

JOURNAL_NAME = ".prepare.jsonl"
"""The finished shards, one a line, so that an interrupted preparation can be resumed."""

SHUFFLE_SEED = 2012
"""Seed of the order in which training images are dealt to the shards.

Neighbours in a shard are of different classes.
"""


@dataclass(frozen=True, slots=True)
class ShardJob:
    """One shard to write."""

    path: Path
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A written shard, and the images that had to be left out."""

    content: FileContent
    undecodable: tuple[str, ...]


class _Line(BaseModel):
    """A line of the journal: a finished shard, and the entries of its images in their order."""

    shard: FileEntry
    images: Base64Bytes


Progress = Callable[[int, int], None]
"""Called after every shard with the number of finished shards, and of all."""


def prepare(source: ImageSource, output: Path, shards: dict[Split, int], image_size: int, report: Progress,
            workers: int) -> DatasetManifest:  # fmt: skip
    """Write the missing shards, then dataset.json.

    Raises DatasetError naming undecodable images.
    """
    output.mkdir(parents=True, exist_ok=True)
    jobs = {split: list(shard_jobs(source.places(split), split, shards[split], output)) for split in SPLITS}
    everything = [job for split in SPLITS for job in jobs[split]]
    done = _journal(output, _identity(source, shards))
    missing = [job for job in everything if not _is_done(job.path, done)]
    bad: list[str] = []
    with (output / JOURNAL_NAME).open("a", encoding="utf-8") as journal:
        for count, result in enumerate(_write_all(missing, workers), start=len(everything) - len(missing) + 1):
            bad += result.undecodable
            if not result.undecodable:
                done[result.content.entry.name] = result.content
                journal.write(_journal_line(result.content))
                journal.flush()
            report(count, len(everything))
    if bad:
        raise DatasetError(f"{len(bad)} image(s) cannot be decoded: {', '.join(sorted(bad)[:20])}")
    contents = {split: [done[job.path.name] for job in jobs[split]] for split in SPLITS}
    about = About(source.description, image_size, source.class_names)
    manifest = write_description(output, "tfrecord", about, contents)
    (output / JOURNAL_NAME).unlink()
    return manifest


def shard_jobs(places: Sequence[Place], split: Split, count: int, output: Path) -> Iterator[ShardJob]:
    """Deal images to `count` shards whose sizes differ by one at most.

    Raises DatasetError for too few.
    """
    if len(places) < count:
        raise DatasetError(f"{len(places)} {split} images cannot fill {count} shards; use fewer")
    order = list(places)
    if split == "train":
        random.Random(SHUFFLE_SEED).shuffle(order)
    for number in range(count):
        start, stop = len(order) * number // count, len(order) * (number + 1) // count
        yield ShardJob(output / shard_name(split, number, count), tuple(order[start:stop]))


def write_job(job: ShardJob) -> ShardResult:
    """Write one shard, leaving out and naming images that cannot be decoded."""
    bad: list[str] = []

    def images() -> Iterator[Image]:
        for place in job.places:
            try:
                yield Image(place.name, place.label, as_rgb_jpeg(place.read()))
            except ValueError:
                bad.append(place.name)

    return ShardResult(write_shard(job.path, images()), tuple(bad))


def _write_all(jobs: Sequence[ShardJob], workers: int) -> Iterator[ShardResult]:
    if not jobs:
        return
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(write_job, job) for job in jobs]):
            yield future.result()


def _identity(source: ImageSource, shards: dict[Split, int]) -> str:
    return json.dumps([source.description, len(source.train), len(source.validation), shards])


def _journal(output: Path, identity: str) -> dict[str, FileContent]:
    """Shards of an earlier attempt at the same preparation.

    Raises DatasetError if it was another one.
    """
    path = output / JOURNAL_NAME
    if not path.exists():
        path.write_text(identity + "\n", encoding="utf-8")
        return {}
    text = read_outside(path, bytes.decode, INDEX_LIMITS, DatasetError, "the journal of a preparation")
    first, *lines = text.splitlines() or [""]
    if first != identity:
        raise DatasetError(f"{output}: holds an unfinished preparation of other data; remove it or name another folder")
    return {content.entry.name: content for content in map(_finished, lines) if content is not None}


def _journal_line(content: FileContent) -> str:
    images = base64.b64encode(content.images)
    return _Line(shard=content.entry, images=images).model_dump_json() + "\n"


def _finished(line: str) -> FileContent | None:
    """The shard of a line; None if the line was cut off, or holds no entries: it is made again."""
    try:
        read = _Line.model_validate_json(line)
    except (ValidationError, ValueError, RecursionError):
        return None
    if len(read.images) != read.shard.images * ENTRY_BYTES:
        return None
    return FileContent(read.shard, read.images)


def _is_done(path: Path, done: dict[str, FileContent]) -> bool:
    return path.name in done and path.exists() and path.stat().st_size == done[path.name].entry.size_bytes
