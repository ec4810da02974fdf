"""The comparison of files' layouts with their description, without a look at the samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aiperf.config.dataset_manifest import MANIFEST_NAME
from aiperf.errors import DatasetError
from workloads.data.formats import FORMATS
from workloads.data.manifest import ScienceManifest


def layout_problems(folder: Path, manifest: ScienceManifest) -> Iterator[str]:
    """Open every file; yield those that cannot be opened, or hold other samples than described."""
    form = FORMATS.load(manifest.format)
    for file in (file for split in manifest.splits for file in manifest.split(split).files):
        try:
            opened = form.open(folder / file.name)
        except DatasetError as error:
            yield from error.lines
            continue
        if (opened.layout.samples, opened.layout.grid) != (file.images, manifest.grid):
            yield f"{folder / file.name}: holds other samples than {MANIFEST_NAME} says"
        opened.close()
