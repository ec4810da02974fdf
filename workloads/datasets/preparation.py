"""`preparation.json`: the images that a preparation took, converted, doubted and left out.

It lies next to the shards, so that a later check can report it again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from aiperf.config.dataset_manifest import MANIFEST_NAME, SPLITS, DatasetManifest, Split
from aiperf.config.fingerprints import DIGEST_BYTES, cut
from aiperf.errors import DatasetError
from aiperf.files import write_atomically
from aiperf.untrusted.reading import MIB, Limits, read_outside, shortened
from workloads.datasets.content import Contents

REPORT_NAME = "preparation.json"

_LIMITS = Limits(size=1024 * MIB)

NAMED = 5
"""Most files that a line names; the report has them all."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassCount(_Part):
    """The numbers of images of one class."""

    train: int = Field(ge=0)
    validation: int = Field(ge=0)


class Preparation(_Part):
    """The report of a preparation."""

    schema_version: int = 1
    source: str
    fingerprint: str
    """Fingerprint of the data set that was made."""
    images: ClassCount
    classes: dict[str, ClassCount]
    converted: dict[str, tuple[str, ...]]
    """Images that were encoded again, by kind."""
    left_out: dict[str, tuple[str, ...]]
    """Files and folders of the source that are not in the data set, by reason."""

    def lines(self) -> Iterator[str]:
        """Yield lines on what was left out, converted or doubted, with counts and a few names."""
        for reason, names in sorted(self.left_out.items()):
            yield f"{len(names)} left out ({shortened(reason)}): {_few(names)}"
        for kind, names in sorted(self.converted.items()):
            yield f"{len(names)} converted to RGB JPEG ({shortened(kind)}): {_few(names)}"
        without = [name for name, count in self.classes.items() if not count.validation]
        if without:
            yield f"{len(without)} of {len(self.classes)} classes have no validation images: {_few(without)}"


def write_preparation(
    output: Path,
    manifest: DatasetManifest,
    contents: Contents,
    converted: Iterable[tuple[str, str]],
    left_out: Iterable[tuple[str, str]],
) -> Preparation:
    """Write a report, from pairs of a name and its kind, or its reason. Raises OSError."""
    counts = {split: class_counts(contents, split) for split in SPLITS}
    report = Preparation(
        source=manifest.source,
        fingerprint=manifest.fingerprint or "",
        images=ClassCount(train=manifest.train.images, validation=manifest.validation.images),
        classes={
            name: ClassCount(train=counts["train"][label], validation=counts["validation"][label])
            for label, name in enumerate(manifest.class_names, start=1)
        },
        converted=by_kind(converted),
        left_out=by_kind(left_out),
    )
    write_report(output, report)
    return report


def write_report(output: Path, report: Preparation) -> None:
    """Write the report next to the data. Raises OSError."""
    write_atomically(output / REPORT_NAME, report.model_dump_json(indent=1).encode(errors="replace") + b"\n")


def read_preparation(data_dir: Path, fingerprint: str | None) -> Preparation | None:
    """Read the report of the preparation; None if there is none.

    Raises DatasetError if it is damaged, or that of other data.
    """
    path = data_dir / REPORT_NAME
    if not path.exists():
        return None
    report = read_outside(path, Preparation.model_validate_json, _LIMITS, DatasetError, "a report of a preparation")
    if report.fingerprint != fingerprint:
        raise DatasetError(f"{REPORT_NAME}: is of other data than {MANIFEST_NAME}")
    return report


def class_counts(contents: Contents, split: Split) -> Counter[int]:
    """The number of images of each label of a split."""
    return Counter(int.from_bytes(entry[DIGEST_BYTES:]) for file in contents[split] for entry in cut(file.images))


def by_kind(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Group names by kind or reason, from pairs of both."""
    found: dict[str, list[str]] = {}
    for name, kind in pairs:
        found.setdefault(kind, []).append(name.encode(errors="backslashreplace").decode())
    return {kind: tuple(sorted(names)) for kind, names in sorted(found.items())}


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(shortened, names[:NAMED])) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
