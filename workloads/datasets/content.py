"""Contents of files of images: their description, and images that are more than once in a data set
or that are not those of its description.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aiperf.config.dataset_manifest import (
    MANIFEST_NAME,
    SPLITS,
    DatasetManifest,
    FileEntry,
    Split,
    SplitEntry,
    write_dataset_manifest,
)
from aiperf.config.fingerprints import (
    DIGEST_BYTES,
    SortedEntries,
    cut,
    entries_name,
    overall_fingerprint,
    sorted_entries,
)
from aiperf.files import write_atomically


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file of images, or the index of a folder of them."""

    entry: FileEntry
    images: bytes
    """Entries of its images in their order (`aiperf.config.fingerprints`)."""
    names: tuple[str, ...] = ()
    """Names of the images, if they are files of their own."""

    def name_of(self, number: int) -> str:
        """The place of an image, in words."""
        return self.names[number] if self.names else f"{self.entry.name}, image {number}"


Contents = Mapping[Split, Sequence[FileContent]]
"""Files of each split, in order."""


@dataclass(frozen=True, slots=True)
class About:
    """The facts of a data set that do not follow from its files."""

    source: str
    image_size: int
    class_names: tuple[str, ...]


def write_description(
    data_dir: Path, form: Literal["tfrecord", "folder"], about: About, contents: Contents
) -> DatasetManifest:
    """Write the entries of each split, then dataset.json. Raises OSError."""
    splits: dict[Split, SplitEntry] = {}
    for split in SPLITS:
        entries = sorted_entries(content.images for content in contents[split])
        write_atomically(data_dir / entries_name(split), entries)
        files = tuple(content.entry for content in contents[split])
        splits[split] = SplitEntry(files=files, fingerprint=hashlib.sha256(entries).hexdigest())
    train, validation = splits["train"], splits["validation"]
    manifest = DatasetManifest(
        format=form,
        source=about.source,
        image_size=about.image_size,
        class_names=about.class_names,
        train=train,
        validation=validation,
        fingerprint=overall_fingerprint(train.fingerprint, validation.fingerprint),
    )
    # Last: a directory without dataset.json is unfinished, whatever else is in it.
    write_dataset_manifest(data_dir, manifest)
    return manifest


LARGEST_REPEATED_SHARE = 0.01
"""Share of a split above which exact duplicates are a problem. ImageNet has far fewer."""

NAMED_EXAMPLES = 5
"""Number of a problem's images that are named."""


def fingerprint_problems(data_dir: Path, manifest: DatasetManifest, contents: Contents) -> Iterator[str]:
    """Yield lines about fingerprints and lists of entries that are not those of the images."""
    for split in SPLITS:
        expected = manifest.split(split).fingerprint
        if expected is None:
            continue
        found = hashlib.sha256(sorted_entries(content.images for content in contents[split])).hexdigest()
        if found != expected:
            yield f"{split}: the fingerprint of its images is {found[:12]}, not {expected[:12]} as in {MANIFEST_NAME}"
        yield from _list_problems(data_dir / entries_name(split), expected)


def _list_problems(path: Path, expected: str) -> Iterator[str]:
    try:
        entries = SortedEntries(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not a list of images"
        yield f"{path.name}: {reason}"
        return
    if entries.fingerprint != expected:
        yield f"{path.name}: is not the list of images that {MANIFEST_NAME} names"
    entries.close()


def repetition(contents: Contents) -> tuple[list[str], list[str]]:
    """Find problems and notes: images in both splits, and images more than once in a split."""
    digests = {split: [_digest(entry) for file in contents[split] for entry in cut(file.images)] for split in SPLITS}
    problems, notes = [], []
    both = set(digests["train"]) & set(digests["validation"])
    if both:
        shared = sum(digest in both for digest in digests["validation"])
        # Sorted: two checks of the same data must print the same lines.
        examples = sorted(both)[:NAMED_EXAMPLES]
        train, validation = (_places(contents[split], examples) for split in SPLITS)
        pairs = "; ".join(f"{validation[digest][0]} is {train[digest][0]}" for digest in examples)
        problems.append(f"{shared} of {len(digests['validation'])} validation images are training images: {pairs}")
    for split in SPLITS:
        times = Counter(digests[split])
        extra = len(digests[split]) - len(times)
        if extra == 0:
            continue
        examples = [digest for digest, count in times.most_common(NAMED_EXAMPLES) if count > 1]
        pairs = "; ".join(" is ".join(places[:2]) for places in _places(contents[split], examples).values())
        said = f"{split}: {extra} of {len(digests[split])} images repeat others: {pairs}"
        if extra > LARGEST_REPEATED_SHARE * len(digests[split]):
            problems.append(f"{said}; at most {LARGEST_REPEATED_SHARE:.0%} may")
        else:
            notes.append(said)
    return problems, notes


def _digest(entry: bytes) -> bytes:
    return entry[:DIGEST_BYTES]


def _places(files: Sequence[FileContent], wanted: Sequence[bytes]) -> dict[bytes, list[str]]:
    """The places of each of a few images, in order."""
    places: dict[bytes, list[str]] = {digest: [] for digest in wanted}
    for file in files:
        for number, entry in enumerate(cut(file.images)):
            if _digest(entry) in places:
                places[_digest(entry)].append(file.name_of(number))
    return places
