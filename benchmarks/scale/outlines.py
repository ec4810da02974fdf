"""Outlines of a long run's architectures: by the records of how each was made, and from files.

python -m benchmarks.scale.outlines [--architectures 8000] [--ways records files]

A process each, since one that has read architectures keeps memory. CPU seconds of one core, files
of architectures that are opened, and megabytes by which the resident memory grows.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from aiperf.network.architecture import Architecture
from aiperf.records.bodies import AnyBody, EpochCompleted, TrialEnded, TrialStarted
from aiperf.records.cursor import Cursor
from aiperf.records.history_files import Batch
from aiperf.records.record import Record, decode_record, encode_record
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from replica.search.knowledge import Knowledge
from search_space.limits import growth_limits
from search_space.morphisms import morph_data
from search_space.resnet import resnet
from search_space.sampling import random_morph

PARENTS = 300
"""Architectures that children are made from at a time."""


class Starts:
    """Records of trials in memory, in place of those of files."""

    def __init__(self, records: list[Record]) -> None:
        self._coming = records

    def read_files(self) -> Iterator[Batch]:
        """All records, once."""
        batch, self._coming = self._coming, []
        yield Batch(tuple(batch), ())

    def cursor(self) -> Cursor:
        """No cursor: nothing is replayed."""
        return Cursor()


def make(scratch: Path, number: int, with_files: bool) -> None:
    """Store starts of architectures a few morphs away from earlier ones, and their files."""
    initial, rng = resnet(50, 32, 10), random.Random(1)
    limits = growth_limits(initial, 4.0, None, 64, 4)
    store, parents, seen = ArchitectureStore(RunPaths(scratch), 1), [initial], {initial.hash}
    store.save(initial)
    starts = [_start(1, initial, None)]
    while len(starts) < number:
        parent = child = rng.choice(parents)
        morphs = []
        for _ in range(rng.randint(1, 4)):
            morph, child = random_morph(child, rng)
            morphs.append(morph_data(morph))
        if child.hash in seen or limits.refusal(child) is not None:
            continue
        seen.add(child.hash)
        if with_files:
            store.save(child)
        starts.append(replace(_start(len(starts) + 1, child, parent), morphs=tuple(morphs)))
        if len(parents) < PARENTS:
            parents.append(child)
        else:
            parents[rng.randrange(PARENTS)] = child
    lines = [encode_record(Record("one-1", start.trial, 0, 0, start)) for start in starts]
    (scratch / "starts").write_bytes(b"".join(lines))


def _start(trial: int, architecture: Architecture, parent: Architecture | None) -> TrialStarted:
    return TrialStarted(
        trial=trial,
        replica=0,
        round=trial,
        architecture=architecture.hash,
        epochs=1,
        parent=None if parent is None else parent.hash,
        hyperparameters={"batch_size": 64},
    )


def look(scratch: Path, by_files: bool) -> None:
    """Print what the outlines of all architectures cost."""
    records = [decode_record(line) for line in (scratch / "starts").read_bytes().splitlines(keepends=True)]
    bodies: list[AnyBody] = []
    for record in records:
        assert isinstance(record.body, TrialStarted)
        trial = record.body.trial
        epoch = EpochCompleted(
            trial=trial,
            epoch=1,
            images_trained=1000,
            images_evaluated=1000,
            correct=trial % 900,
            loss=2.0,
            validation_loss=2.1,
            learning_rate=0.1,
        )
        bodies += [replace(record.body, morphs=()) if by_files else record.body, epoch]
        bodies.append(TrialEnded(trial=trial, reason="completed"))
    knowledge = Knowledge(RunPaths(scratch), Starts([Record("one-1", n, n, n, body) for n, body in enumerate(bodies)]))
    knowledge.read()
    knowledge.ranked()
    files: list[str] = []
    sys.addaudithook(
        lambda event, found: files.append(event) if event == "open" and "architecture.json" in str(found[0]) else None
    )
    before, began = _resident(), time.process_time()
    known = len(knowledge.observations().completed)
    took_s = time.process_time() - began
    way = "from files" if by_files else "by records"
    print(f"{known} outlines {way}: {took_s:.2f} CPU s, {len(files)} files, {_resident() - before:.0f} MB")


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main() -> None:
    """Make a run, and look at it in both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", type=int, default=8000)
    parser.add_argument("--ways", nargs="+", choices=("records", "files"), default=("records", "files"))
    parser.add_argument("--look", nargs=2, metavar=("SCRATCH", "WAY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.look:
        look(Path(arguments.look[0]), arguments.look[1] == "files")
        return
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch), arguments.architectures, "files" in arguments.ways)
        for way in arguments.ways:
            command = [sys.executable, "-m", "benchmarks.scale.outlines", "--look", scratch, way]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
