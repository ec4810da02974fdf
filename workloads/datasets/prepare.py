"""Shards made from a source: in parallel, resumable, with a checksum of every file."""

import base64
import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path

from pydantic import Base64Bytes, BaseModel, ValidationError

from aiperf.config.dataset_manifest import INDEX_LIMITS, SPLITS, DatasetManifest, FileEntry, Split
from aiperf.config.fingerprints import ENTRY_BYTES
from aiperf.errors import DatasetError
from aiperf.processes import spawned
from aiperf.untrusted.reading import read_outside, shortened
from workloads.datasets.content import About, Contents, FileContent, write_description
from workloads.datasets.encoding import as_rgb_jpeg, kind_of
from workloads.datasets.preparation import class_counts, write_preparation
from workloads.datasets.shards import Image, shard_name, write_shard
from workloads.datasets.sources import ImageSource, Place

JOURNAL_NAME = ".prepare.jsonl"
"""Name of the file of finished shards, one a line, by which a preparation is resumed."""

MOST_SHOWN = 20
"""Most of the files that cannot be read that are named."""

SHUFFLE_SEED = 2012
"""Seed of the order in which training images are dealt to the shards.

Neighbours in a shard are of different classes.
"""


@dataclass(frozen=True, slots=True)
class ShardJob:
    """One shard to write."""

    path: Path
    split: Split
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A written shard, with name and kind of converted images, and name and reason of others."""

    content: FileContent
    converted: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    unreadable: tuple[str, ...] = ()
    """Files that may be images but cannot be read, and the reasons: the shard lacks them."""


class _Line(BaseModel):
    """A line of the journal: a finished shard, and the entries of its images in their order."""

    shard: FileEntry
    images: Base64Bytes
    converted: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


Progress = Callable[[int, int], None]
"""Function that is called after every shard with the number of finished ones, and of all."""


def prepare(
    source: ImageSource, output: Path, shards: dict[Split, int], image_size: int, report: Progress, workers: int
) -> DatasetManifest:
    """Write the missing shards, then dataset.json and preparation.json.

    Files that are not images, or that cannot be decoded, are left out and named in
    preparation.json. Raises DatasetError naming files that cannot be read, and classes without any
    training image.
    """
    output.mkdir(parents=True, exist_ok=True)
    jobs = {split: list(shard_jobs(source.places(split), split, shards[split], output)) for split in SPLITS}
    everything = [job for split in SPLITS for job in jobs[split]]
    done = _journal(output, _identity(source, shards))
    missing = [job for job in everything if not _is_done(job.path, done)]
    unreadable: list[str] = []
    with (output / JOURNAL_NAME).open("a", encoding="utf-8") as journal:
        for count, result in enumerate(_write_all(missing, workers), start=len(everything) - len(missing) + 1):
            # A file that cannot be read may be readable tomorrow: its shard is not entered as
            # finished, so that only it is made again.
            unreadable += result.unreadable
            if not result.unreadable:
                done[result.content.entry.name] = result
                journal.write(_journal_line(result))
                # At once: a preparation that is killed has lost the shards in progress, and no
                # others.
                journal.flush()
            report(count, len(everything))
    if unreadable:
        rest = [f"and {len(unreadable) - MOST_SHOWN} more"] if len(unreadable) > MOST_SHOWN else []
        way_out = "make them readable and prepare again: all other shards are kept"
        raise DatasetError(*unreadable[:MOST_SHOWN], *rest, f"{len(unreadable)} file(s) cannot be read; {way_out}")
    contents = {split: [done[job.path.name].content for job in jobs[split]] for split in SPLITS}
    results = [done[job.path.name] for job in everything]
    left_out = [*source.left_out, *(pair for result in results for pair in result.left_out)]
    _check_classes(source, contents, left_out)
    about = About(source.description, image_size, source.class_names)
    manifest = write_description(output, "tfrecord", about, contents)
    write_preparation(output, manifest, contents, (pair for result in results for pair in result.converted), left_out)
    (output / JOURNAL_NAME).unlink()
    return manifest


def _check_classes(source: ImageSource, contents: Contents, left_out: Sequence[tuple[str, str]]) -> None:
    if not any(file.images for file in contents["validation"]):
        reasons = ", ".join(f"{name} ({reason})" for name, reason in left_out[:MOST_SHOWN])
        raise DatasetError(f"no validation image can be decoded; left out: {reasons}")
    counts = class_counts(contents, "train")
    empty = [name for label, name in enumerate(source.class_names, start=1) if not counts[label]]
    if empty:
        files = [f"{name} ({reason})" for name, reason in left_out]
        raise DatasetError(
            f"{len(empty)} classes have no training image that can be decoded: {', '.join(map(repr, empty[:20]))}; "
            f"left out: {', '.join(files[:20])}; repair these files, or remove the classes from both splits"
        )


def shard_jobs(places: Sequence[Place], split: Split, count: int, output: Path) -> Iterator[ShardJob]:
    """Deal images to `count` shards whose sizes differ by one at most.

    Raises DatasetError for too few.
    """
    if len(places) < count:
        raise DatasetError(f"{len(places)} {split} images cannot fill {count} shards; use fewer")
    # Sources list images class by class. A pipeline reads a few shards at a time and shuffles
    # within a buffer: without this order its batches would be of few classes.
    order = list(places)
    if split == "train":
        random.Random(SHUFFLE_SEED).shuffle(order)
    for number in range(count):
        start, stop = len(order) * number // count, len(order) * (number + 1) // count
        yield ShardJob(output / shard_name(split, number, count), split, tuple(order[start:stop]))


def write_job(job: ShardJob) -> ShardResult:
    """Write one shard, leaving out and naming images that cannot be decoded."""
    unreadable: list[str] = []
    converted: list[tuple[str, str]] = []
    left_out: list[tuple[str, str]] = []

    def images() -> Iterator[Image]:
        for place in job.places:
            name = f"{job.split}/{place.name}"
            try:
                data = place.read()
                encoded = as_rgb_jpeg(data)
            except OSError as error:
                unreadable.append(f"{place.path}: {error.strerror}")
                continue
            except ValueError as error:
                left_out.append((name, str(error)))
                continue
            if encoded is not data:
                converted.append((name, kind_of(data)))
            yield Image(place.name, place.label, encoded)

    return ShardResult(write_shard(job.path, images()), tuple(converted), tuple(left_out), tuple(unreadable))


def _write_all(jobs: Sequence[ShardJob], workers: int) -> Iterator[ShardResult]:
    if not jobs:
        return
    with spawned(min(workers, len(jobs))) as pool:
        for future in as_completed([pool.submit(write_job, job) for job in jobs]):
            yield future.result()


def _identity(source: ImageSource, shards: dict[Split, int]) -> str:
    return json.dumps([source.description, len(source.train), len(source.validation), shards])


def _journal(output: Path, identity: str) -> dict[str, ShardResult]:
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
        raise DatasetError(
            f"{output}: holds an unfinished preparation of other data; remove it or name another folder "
            f"(found {shortened(first)}, wanted {shortened(identity)}: source, images of both splits, shards)"
        )
    return {result.content.entry.name: result for result in map(_finished, lines) if result is not None}


def _journal_line(result: ShardResult) -> str:
    images = base64.b64encode(result.content.images)
    line = _Line(shard=result.content.entry, images=images, converted=result.converted, left_out=result.left_out)
    return line.model_dump_json() + "\n"


def _finished(line: str) -> ShardResult | None:
    """Read the shard of a line; None for a line that was cut off: its shard is made again."""
    try:
        read = _Line.model_validate_json(line)
    except (ValidationError, ValueError, RecursionError):
        return None
    if len(read.images) != read.shard.images * ENTRY_BYTES:
        return None
    return ShardResult(FileContent(read.shard, read.images), read.converted, read.left_out)


def _is_done(path: Path, done: dict[str, ShardResult]) -> bool:
    if path.name not in done or not path.exists():
        return False
    # Size alone: shards appear whole (`write_shard`), and reading all of them again would take
    # hours.
    return path.stat().st_size == done[path.name].content.entry.size_bytes
