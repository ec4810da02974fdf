"""Reading and decoding of every image, in parallel: contents and problems of files."""

from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from aiperf.config.dataset_manifest import FileEntry, Split
from aiperf.config.fingerprints import ENTRY_BYTES, image_entry
from aiperf.processes import spawned
from aiperf.untrusted.images import decode_image
from aiperf.untrusted.reading import reason_of
from aiperf.untrusted.recognition import HEAD_BYTES, described
from workloads.datasets.content import FileContent
from workloads.datasets.encoding import FORMATS, is_jpeg, jpeg_components
from workloads.datasets.prepare import Progress
from workloads.datasets.shards import ForeignRecordError, read_shard, sha256_of
from workloads.datasets.sources import Place

NAMED_PROBLEMS = 5
"""Number of bad images of a file that are named; the others are counted."""

MOST_CLASSES = 1_000_000
"""Most classes: labels are their numbers, and every class has a name."""

FOLDER_CHUNK = 1000
"""Number of images of a folder that one worker checks at a time."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The contents and problems of one file of images."""

    content: FileContent
    largest_label: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FolderFindings:
    """The entries and names of images that are files of their own, and problems.

    Images that cannot be read are among the problems only.
    """

    images: bytes
    names: tuple[str, ...]
    problems: tuple[str, ...]


def examine_shards(files: Sequence[Path], report: Progress, workers: int) -> dict[str, Findings]:
    """Read and decode every image of each shard; give findings by name."""
    found: dict[str, Findings] = {}
    if not files:
        return found
    with spawned(min(workers, len(files))) as pool:
        for future in as_completed([pool.submit(examine_shard, path) for path in files]):
            findings = future.result()
            found[findings.content.entry.name] = findings
            report(len(found), len(files))
    return found


def examine_shard(path: Path) -> Findings:
    """Read and decode every image of a shard."""
    largest, problems, entries = 0, list[str](), bytearray()
    labels: set[int] = set()

    def count() -> int:
        return len(entries) // ENTRY_BYTES

    try:
        digest, size = sha256_of(path), path.stat().st_size
        for label, encoded in read_shard(path):
            largest = max(largest, label)
            labels.add(label)
            try:
                _decode(encoded, "")
            except ValueError as error:
                problems.append(f"{path.name}, image {count()}: {error}")
            # Of images that cannot be decoded, too: the fingerprint is of what the files hold.
            entries += image_entry(encoded, label)
    except OSError as error:
        entry = FileEntry(name=path.name, images=0, size_bytes=0, sha256=sha256(b"").hexdigest())
        return Findings(FileContent(entry, b""), 0, (f"{path.name}: {error.strerror or error}",))
    except ForeignRecordError as error:
        problems.append(f"{path.name}, image {count()}: {error}")
    except ValueError as error:
        problems.append(f"{path.name}: damaged after image {count()}: {reason_of(error)}")
    if labels and (min(labels) < 1 or max(labels) > MOST_CLASSES):
        problems.insert(
            0, f"{path.name}: has labels {min(labels)} to {max(labels)}; labels count from 1 to the number of classes"
        )
    entry = FileEntry(name=path.name, images=count(), size_bytes=size, sha256=digest)
    return Findings(FileContent(entry, bytes(entries)), largest, shortened(path.name, problems))


def examine_folder(
    places: Mapping[Split, Sequence[Place]], report: Progress, workers: int
) -> dict[Split, FolderFindings]:
    """Read and decode images that are files of their own."""
    chunks = [
        (split, own[start : start + FOLDER_CHUNK])
        for split, own in places.items()
        for start in range(0, len(own), FOLDER_CHUNK)
    ]
    found: dict[Split, list[FolderFindings]] = {split: [] for split in places}
    if chunks:
        with spawned(min(workers, len(chunks))) as pool:
            futures = [pool.submit(examine_files, chunk) for _, chunk in chunks]
            for done, _ in enumerate(as_completed(futures), start=1):
                report(done, len(chunks))
            for (split, _), future in zip(chunks, futures, strict=True):
                found[split].append(future.result())
    return {split: _together(parts) for split, parts in found.items()}


def _together(parts: Sequence[FolderFindings]) -> FolderFindings:
    return FolderFindings(
        b"".join(part.images for part in parts),
        tuple(name for part in parts for name in part.names),
        tuple(problem for part in parts for problem in part.problems),
    )


def examine_files(places: Sequence[Place]) -> FolderFindings:
    """Read and decode images of a folder."""
    problems, names, entries = [], [], bytearray()
    for place in places:
        try:
            encoded = place.read()
            entries += image_entry(encoded, place.label)
            names.append(place.name)
            _decode(encoded, "; aiperf dataset prepare converts it")
        except (OSError, ValueError) as error:
            problems.append(f"{place.name}: {error.strerror if isinstance(error, OSError) else error}")
    return FolderFindings(bytes(entries), tuple(names), shortened("folder", problems))


def _decode(encoded: bytes, way_out: str) -> None:
    """Decode a JPEG. Raises ValueError for another format, other colours, and if it is damaged.

    `way_out` is said of images that could be converted.
    """
    if not is_jpeg(encoded):
        found = described(encoded[:HEAD_BYTES])
        convertible = found.endswith(tuple(f"{name} image" for name in FORMATS))
        raise ValueError(f"is {found}, not a JPEG, and only JPEGs are trained{way_out if convertible else ''}")
    components = jpeg_components(encoded)
    decode_image(encoded, "JPEG")
    if components not in (1, 3):
        colours = "four components (CMYK)" if components == 4 else f"{components} components"
        raise ValueError(f"has {colours}, which decoders read differently{way_out}")


def shortened(name: str, problems: list[str]) -> tuple[str, ...]:
    """A few of the problems of `name`, and the count of the others."""
    rest = len(problems) - NAMED_PROBLEMS
    return tuple(problems[:NAMED_PROBLEMS]) + ((f"{name}: and {rest} more problems",) if rest > 0 else ())
