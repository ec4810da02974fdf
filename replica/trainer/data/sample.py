"""A comparison of a random sample of the images with the data set's fingerprint.

The sample is drawn with the operating system's randomness, so that it cannot be foreseen. It shows
that the sampled images are the data set's, and not that all are.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from random import SystemRandom

from aiperf.config.dataset_manifest import MANIFEST_NAME, SPLITS, DatasetManifest, Split, read_dataset_manifest
from aiperf.config.datasets import DIGITS, REGISTERED, Dataset
from aiperf.config.fingerprints import SortedEntries, entries_name, image_entry
from aiperf.errors import DatasetError
from aiperf.storage.patience import with_patience
from aiperf.wire.messages import ArchitectureRequest
from replica.trainer.data import data_directory
from replica.trainer.data.contract import RankShare
from workloads.data.records import read_images

SAMPLED_IMAGES = 1000
"""Number of images of each split that all ranks compare together."""

SAMPLED_FILES = 16
"""Number of shards of each split that all ranks look into: a run of each, from a random record."""

SAMPLED_BYTES = 32 << 20
"""Bytes of a split after which a rank has compared enough."""

NAMED_IMAGES = 5

LARGEST_SHARED = 0.01
"""Share of sampled validation images above which splits overlap: public sets have a few copies."""

_Sampled = tuple[str, bytes]
"""The place of an image in words, and its entry."""


def fingerprint_of(request: ArchitectureRequest, dataset: Dataset, rank: int = 0, ranks: int = 1) -> str | None:
    """Compare a random sample of the images with the data set, and give its fingerprint.

    None if it has none, or if the images are synthetic. Each rank compares its share of the sample.
    Raises DatasetError naming images that are not the data set's, by file and index.
    """
    if request.synthetic_input:
        return None
    if dataset.name == DIGITS.name:
        return _digits()
    folder = data_directory(request, dataset)
    manifest = read_dataset_manifest(folder)
    if manifest.fingerprint is None:
        return None
    with ExitStack() as stack:
        entries: dict[Split, SortedEntries] = {}
        for split in SPLITS:
            entries[split] = stack.enter_context(closing(_entries(folder, manifest, split)))
            _compare(folder, split, _sample(folder, manifest, split, RankShare(rank, ranks)), entries[split])
        if rank == 0:  # one sample is enough
            _compare_splits(folder, entries["train"], entries["validation"])
    return manifest.fingerprint


def _compare_splits(folder: Path, train: SortedEntries, validation: SortedEntries) -> None:
    """Look for some validation images among those of training. Raises DatasetError."""
    drawn = SystemRandom().sample(range(len(validation)), min(len(validation), SAMPLED_IMAGES))
    shared = sum(train.has_image(validation[number]) for number in drawn)
    if shared > LARGEST_SHARED * len(drawn):
        raise DatasetError(
            f"{folder}: {shared} of {len(drawn)} sampled validation images are training images, too; "
            f"find them with: aiperf dataset check {folder}"
        )


def _digits() -> str:
    from replica.trainer.data.digits import fingerprint  # noqa: PLC0415  (loads NumPy)

    found = fingerprint()
    if found != REGISTERED[DIGITS.name]:
        raise DatasetError(f"the digits of the installed scikit-learn are others, or their split: fingerprint {found}")
    return found


def _entries(folder: Path, manifest: DatasetManifest, split: Split) -> SortedEntries:
    """Open the entries of a split, which the fingerprint in dataset.json vouches for."""
    path = folder / entries_name(split)
    remedy = f"make it again with: aiperf dataset check {folder} --write-manifest"
    try:
        entries = with_patience(partial(SortedEntries, path), path)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{error}; {remedy}") from None
    if entries.fingerprint != manifest.split(split).fingerprint:
        entries.close()
        raise DatasetError(f"{path}: is not the list of images that {MANIFEST_NAME} names; {remedy}")
    return entries


def _compare(folder: Path, split: Split, sampled: Iterator[_Sampled], entries: SortedEntries) -> None:
    """Look the images up. One that comes more often than in the data set is wrong, too."""
    seen: Counter[bytes] = Counter()
    wrong: list[str] = []
    taken = 0
    try:
        for place, entry in sampled:
            taken += 1
            seen[entry] += 1
            allowed = entries.count(entry)
            if seen[entry] > allowed:
                wrong.append(f"{place} ({'repeated' if allowed else 'another image or label'})")
    except (OSError, ValueError) as error:
        raise DatasetError(f"{folder}, {split}: {error}; look for more with: aiperf dataset check {folder}") from None
    if wrong:
        raise DatasetError(
            f"{folder}: {len(wrong)} of {taken} sampled {split} images are not those of the data set: "
            f"{'; '.join(wrong[:NAMED_IMAGES])}; look for more with: aiperf dataset check {folder}"
        )


def _sample(folder: Path, manifest: DatasetManifest, split: Split, share: RankShare) -> Iterator[_Sampled]:
    total = 0
    draw = _from_index if manifest.format == "folder" else _from_shards
    for place, label, encoded in draw(folder, manifest, split, share):
        yield place, image_entry(encoded, label)
        total += len(encoded)
        if total >= SAMPLED_BYTES:
            return


def _from_shards(
    folder: Path, manifest: DatasetManifest, split: Split, share: RankShare
) -> Iterator[tuple[str, int, bytes]]:
    """Yield a random run of each of a few random shards, as much of each, whatever their bytes."""
    chance = SystemRandom()
    files = [file for file in manifest.split(split).files if file.images]
    # Records have no index: an image is found by reading the lengths before it, so that a few files
    # are read in runs instead of many for one image each.
    chosen = chance.sample(files, min(len(files), max(1, len(share.of(SAMPLED_FILES)))))
    wanted = -(-len(share.of(SAMPLED_IMAGES)) // len(chosen)) if chosen else 0
    for file in chosen:
        count = min(wanted, file.images)
        first = chance.randrange(file.images - count + 1)
        size = 0
        for number, (label, encoded) in enumerate(read_images(folder / file.name, first, count), start=first):
            yield f"{file.name}, image {number}", label, encoded
            size += len(encoded)
            if size >= SAMPLED_BYTES // len(chosen):
                break


def _from_index(
    folder: Path, manifest: DatasetManifest, split: Split, share: RankShare
) -> Iterator[tuple[str, int, bytes]]:
    """Yield random files of a split of an image folder."""
    index = manifest.split(split).files[0].name
    text = with_patience(partial((folder / index).read_text, encoding="utf-8"), folder / index)
    rows = [line.split("\t") for line in text.splitlines()]
    chance = SystemRandom()
    for number in chance.sample(range(len(rows)), min(len(rows), len(share.of(SAMPLED_IMAGES)))):
        name, label = rows[number]
        content = with_patience((folder / name).read_bytes, folder / name)
        yield f"{name} ({index}, image {number})", int(label), content
