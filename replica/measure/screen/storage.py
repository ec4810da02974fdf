"""The storage of a node: `python -m replica.measure.screen.storage --replica N`.

It prints a line when it is ready, reads the request of the screening, and prints a row for each
measure: of the data set through the readers of a training, and of the run directory through the
writer of records.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from statistics import median

import numpy as np

from aiperf.clock import SystemClock
from aiperf.config.dataset_manifest import read_dataset_manifest, read_index
from aiperf.config.datasets import DIGITS
from aiperf.config.frameworks import TRAITS
from aiperf.errors import AiperfError
from aiperf.processes import MessageOutput
from aiperf.screening.messages import READY, STORAGE, WORKING, Row, ScreenRequest, read_request
from aiperf.signals import die_with_parent
from aiperf.storage.appended import AppendedFile
from aiperf.storage.patience import PATIENCE
from aiperf.wire.messages import ArchitectureRequest
from replica.trainer.data import open_source
from replica.trainer.data.contract import RankShare

MIB = 1 << 20
RECORD = b"." * 499 + b"\n"
"""About as long as a record."""

BLOCKS = 5
FULL_S, QUICK_S = 10.0, 2.0
"""Longest time of a measure."""

FILES, MOST_FILES = 100, 10_000
FILE_BYTES = 16 * MIB

CACHED = "part of it came from the cache of the node, which could not be dropped"


@dataclass(frozen=True, slots=True)
class Subject:
    """The folders that are measured, and for how long."""

    request: ScreenRequest
    replica: int
    folder: Path
    """A folder of this node on the file system of the run."""
    seconds: Callable[[], float]

    @property
    def block_s(self) -> float:
        """Longest time of a block."""
        return (QUICK_S if self.request.quick else FULL_S) / BLOCKS


def main() -> int:
    """Measure, on the file systems of a run."""
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m replica.measure.screen.storage", description="Measure storage.")
    parser.add_argument("--replica", type=int, required=True)
    arguments = parser.parse_args()
    output = MessageOutput()
    output.send(_row(READY))
    line = sys.stdin.buffer.readline()
    if not line:
        return 1
    request = read_request(line)
    folder = Path(request.folder) / f"storage-{arguments.replica:04d}"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        output.send(_row(WORKING, problem=f"{type(error).__name__}: {error}"[:1000]))
        return 0
    try:
        for row in storage_rows(Subject(request, arguments.replica, folder, SystemClock().monotonic_s)):
            output.send(row)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def storage_rows(subject: Subject) -> Iterator[Row]:
    """Measure everything in turn; a failure is the row's problem."""
    jobs: dict[str, Callable[[Subject], Row]] = {
        "record": records,
        "run_write": writes,
        "run_read": reads,
        "run_opens": opens,
    }
    if _has_files(subject.request):
        jobs |= {"data_opens": data_opens, "data_read": data_reads, "input": inputs}
    for measure, job in jobs.items():
        try:
            yield job(subject)
        except (AiperfError, OSError, ValueError) as error:
            yield _row(measure, problem=f"{type(error).__name__}: {error}"[:1000])


def records(subject: Subject) -> Row:
    """Records a second: each is appended, and durable before the next one (`AppendedFile`)."""
    file = AppendedFile(subject.folder / "records", subject.folder, subject.folder, PATIENCE)
    try:
        return _rated("record", subject, lambda _: _appended(file))
    finally:
        file.close()


def _appended(file: AppendedFile) -> float:
    file.append(RECORD)
    return 1.0


def writes(subject: Subject) -> Row:
    """Bytes a second of files that are written and made durable."""
    data = os.urandom(MIB)

    def write(number: int) -> float:
        # A few files again and again: a fast disk would be filled within seconds.
        with (subject.folder / f"written-{number % BLOCKS}").open("wb") as stream:
            for _ in range(FILE_BYTES // MIB):
                stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        return FILE_BYTES

    return _rated("run_write", subject, write)


def reads(subject: Subject) -> Row:
    """Bytes a second of what `writes` has left, from the server if the cache can be dropped."""
    written = [file for file in sorted(subject.folder.glob("written-*")) if file.stat().st_size == FILE_BYTES]
    if not written:
        raise ValueError("no file could be written whole")
    return _of_files("run_read", written, subject)


def opens(subject: Subject) -> Row:
    """Files of the run directory that are opened a second."""
    files = [subject.folder / f"small-{number}" for number in range(FILES)]
    for file in files:
        file.write_bytes(RECORD)
    return _rated("run_opens", subject, lambda number: _opened(files[number % FILES]))


def data_opens(subject: Subject) -> Row:
    """Files of the data set that are opened a second."""
    files = _data_files(subject)
    return _rated("data_opens", subject, lambda number: _opened(files[number % len(files)]))


def _opened(file: Path) -> float:
    with file.open("rb", buffering=0) as stream:
        stream.read(1)
    return 1.0


def data_reads(subject: Subject) -> Row:
    """Bytes a second of the files of the data set, from the server if the cache can be dropped."""
    return _of_files("data_read", _data_files(subject), subject)


def inputs(subject: Subject) -> Row:
    """Images a second of the input pipeline of a training, with its decoding."""
    config = subject.request.config
    request = ArchitectureRequest(
        architecture_path="",
        dataset=config.run.dataset,
        data_dir=config.run.data_dir,
        batch_size=config.batch_size,
        decoder=config.training.decoder,
        parallel_decode=config.training.parallel_decode,
        shuffle_buffer=config.training.shuffle_buffer,
        epochs=1,
        max_epochs=60,
        patience=9,
        seed=1,
        learning_rate=0.1,
        momentum=0.9,
        label_smoothing=0.1,
        precision="float32",
        compile="off",
        progress_interval_s=5.0,
    )
    source = open_source(request, config.dataset, TRAITS[config.training.framework].pipeline)
    epochs = (source.train_batches(config.batch_size, subject.replica, epoch, RankShare()) for epoch in count())
    batches = chain.from_iterable(epochs)
    next(batches)  # the pipeline fills
    return _rated("input", subject, lambda _: float(next(batches)[0].shape[0]))


def _has_files(request: ScreenRequest) -> bool:
    run, training = request.config.run, request.config.training
    from_files = run.dataset != DIGITS.name and training.input != "synthetic"
    return run.suite == "automl" and run.data_dir is not None and from_files


def _data_files(subject: Subject) -> list[Path]:
    """Files of the training images, in an order of this node's own."""
    folder = Path(subject.request.config.run.data_dir or "")
    manifest = read_dataset_manifest(folder)
    names = (
        [str(name) for name, _ in read_index(folder, manifest, "train")]
        if manifest.format == "folder"
        else [file.name for file in manifest.train.files]
    )
    order = np.random.default_rng(subject.replica).permutation(len(names))[:MOST_FILES]
    return [folder / names[index] for index in order]


def _of_files(measure: str, files: list[Path], subject: Subject) -> Row:
    """Bytes a second of whole files."""
    cached = [False]

    def read(number: int) -> float:
        with files[number % len(files)].open("rb", buffering=0) as stream:
            cached[0] = not _dropped(stream.fileno()) or cached[0]
            return float(sum(iter(lambda: len(stream.read(MIB)), 0)))

    row = _rated(measure, subject, read)
    return row if not cached[0] else _row(measure, row.value, row.spread, CACHED)


def _dropped(descriptor: int) -> bool:
    """Ask the kernel to drop a file from its cache; True if its first page is gone."""
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
        return False
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        # With this flag the kernel gives only what it has in its cache, and refuses everything
        # else.
        return os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT) == 0
    except BlockingIOError:
        return True
    except OSError:  # a file system that cannot say
        return False


def _rated(measure: str, subject: Subject, work: Callable[[int], float]) -> Row:
    """The rate of work in blocks: `work` gives its amount, and gets the number of its call."""
    rates, calls = [], count()
    for _ in range(BLOCKS):
        began, done, took_s = subject.seconds(), 0.0, 0.0
        while took_s < subject.block_s:
            done += work(next(calls))
            took_s = subject.seconds() - began
        rates.append(done / took_s)
    low, high = np.percentile(rates, (10, 90))
    middle = median(rates)
    return _row(measure, middle, float((high - low) / middle))


def _row(measure: str, value: float | None = None, spread: float = 0.0, problem: str | None = None) -> Row:
    return Row(device=STORAGE, kind=STORAGE, measure=measure, value=value, spread=spread, problem=problem)


if __name__ == "__main__":
    sys.exit(main())
