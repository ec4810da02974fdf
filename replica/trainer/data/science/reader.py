"""Samples of a split by their numbers, out of files that stay open."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from threading import Lock

from aiperf.errors import DatasetError
from workloads.data.arrays import Rows
from workloads.data.formats import Format, OpenFile
from workloads.data.manifest import ScienceFile

CACHE_BYTES = 256 << 20
"""Of blocks that were read and may be asked for again."""

MOST_OPEN = 64
"""Files that are open at the same time."""


class Reader:
    """The samples of one split. Threads may share it."""

    def __init__(self, folder: Path, form: Format, files: Sequence[ScienceFile]) -> None:
        self._folder, self._form, self._files = folder, form, files
        self._ends = list(accumulate(file.images for file in files))
        self._open: OrderedDict[int, OpenFile] = OrderedDict()
        self._blocks: OrderedDict[tuple[int, int], Rows] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def sample(self, number: int, keep: bool) -> Rows:
        """One sample, without the first axis.

        With `keep`, the block that it is in stays in memory for its neighbours. Raises ValueError
        naming file and sample, or DatasetError.
        """
        file, index = self.place(number)
        opened = self._opened(file)
        try:
            if not keep:
                inputs, targets = opened.read(index, index + 1)
                return inputs[0], targets[0]
            start = index - index % self._form.block
            inputs, targets = self._block(opened, file, start)
        except ValueError as error:
            raise ValueError(f"{self._files[file].name}: {error}") from None
        return inputs[index - start], targets[index - start]

    def place(self, number: int) -> tuple[int, int]:
        """The file that a sample is in, counted from 0, and its index there."""
        file = bisect_right(self._ends, number)
        return file, number - (self._ends[file - 1] if file else 0)

    def _opened(self, number: int) -> OpenFile:
        with self._lock:
            opened = self._open.get(number)
            if opened is None:
                file = self._files[number]
                opened = self._form.open(self._folder / file.name)
                if opened.layout.samples != file.images:
                    raise DatasetError(
                        f"{self._folder / file.name}: holds {opened.layout.samples} samples, not {file.images}"
                    )
                self._open[number] = opened
                # Another thread may still read an old file: it closes when all have left it.
                if len(self._open) > MOST_OPEN:
                    self._open.popitem(last=False)
            self._open.move_to_end(number)
            return opened

    def _block(self, opened: OpenFile, file: int, start: int) -> Rows:
        with self._lock:
            rows = self._blocks.get((file, start))
            if rows is None:
                rows = opened.read(start, min(start + self._form.block, opened.layout.samples))
                self._blocks[file, start] = rows
                self._bytes += rows[0].nbytes
                while self._bytes > CACHE_BYTES and len(self._blocks) > 1:
                    self._bytes -= self._blocks.popitem(last=False)[1][0].nbytes
            self._blocks.move_to_end((file, start))
            return rows


def examples_a_cache(sample_bytes: int, block: int) -> int:
    """The number of blocks that half of the cache holds, at least one."""
    return max(1, CACHE_BYTES // 2 // max(1, sample_bytes * block))
