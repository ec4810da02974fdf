"""CPU time of a record with the chain and without it, and of the primary's witness of an epoch.

python -m benchmarks.chain [--records 2000] [--rounds 15] [--format json]

The records are a replica's: reports of progress, and an epoch for every tenth. They are written to
memory where there is a file system in memory, and fsync is left out, which waits for the disk in
both cases. The two take turns; medians of the rounds, in microseconds a record.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

from aiperf.clock import SystemClock
from aiperf.records.bodies import AnyBody, EpochCompleted, ProgressMade
from aiperf.records.history_files import HistoryWriter
from aiperf.records.record import Record, encode_record
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.lines import decode_to_primary, encode
from aiperf.wire.messages import Finished, Recorded
from benchmarks.measure import median_values
from primary.witness import Witness

MEMORY = Path("/dev/shm")
IMAGES = 1_281_167


class Unchained(HistoryWriter):
    """Writes records without a link, and hashes nothing."""

    def append(self, body: AnyBody, at_monotonic_ms: int | None = None) -> Record:
        """Write a record of version 1."""
        monotonic_ms = self.clock.monotonic_ms() if at_monotonic_ms is None else at_monotonic_ms
        record = Record(self.name, self._sequence, self.clock.utc_ms_at(monotonic_ms), monotonic_ms, body)
        self._file.append(encode_record(record))
        self._sequence += 1
        return record


def bodies(count: int) -> list[AnyBody]:
    """A replica's records: nine reports of progress, then an epoch, and so on."""
    found: list[AnyBody] = []
    for number in range(count):
        epoch, tenth = divmod(number, 10)
        if tenth < 9:
            images = IMAGES * (tenth + 1) // 10
            found.append(ProgressMade(trial=17, epoch=epoch + 1, images_trained=images, images_evaluated=0))
        else:
            found.append(
                EpochCompleted(
                    trial=17,
                    epoch=epoch + 1,
                    images_trained=IMAGES,
                    images_evaluated=50_000,
                    correct=37_123,
                    loss=1.2345678,
                    validation_loss=1.3456789,
                    learning_rate=0.0999,
                    evidence="0" * 64,
                    weights="1" * 64,
                )
            )
    return found


def reports(count: int) -> list[bytes]:
    """A replica's messages about its epochs, as they come over the pipe."""
    return [encode(Recorded(trial=17, epoch=n, sequence=10 * n, digest=f"{n:064x}")) for n in range(1, count + 1)]


def writing(writer: HistoryWriter, records: Sequence[AnyBody]) -> Callable[[], float]:
    """Append all records; CPU microseconds each."""

    def turn() -> float:
        began = time.process_time_ns()
        for body in records:
            writer.append(body)
        return (time.process_time_ns() - began) / 1000 / len(records)

    return turn


def witnessing(writer: HistoryWriter, lines: Sequence[bytes]) -> Callable[[], float]:
    """Decode all reports and record them as a primary does; CPU microseconds each."""
    witness = Witness(writer, asyncio.Event())

    def turn() -> float:
        witness.welcome("replica-0000-1")
        witness.issued(17)
        began = time.process_time_ns()
        for line in lines:
            message = decode_to_primary(line)
            assert isinstance(message, Recorded)
            witness.take(message)
        spent = time.process_time_ns() - began
        witness.take(Finished(trial=17, completed=True, reason=""))
        return spent / 1000 / len(lines)

    return turn


def measure(records: int, rounds: int) -> dict[str, float]:
    """Microseconds with and without the chain, their difference and ratio, and of a witness."""
    with (
        patch.object(os, "fsync", lambda descriptor: None),
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name,
    ):
        paths, clock, written = RunPaths(Path(name) / "run"), SystemClock(), bodies(records)
        paths.create()
        with (
            Unchained(paths, "replica-0000", clock) as bare,
            HistoryWriter(paths, "replica-0001", clock) as chained,
            HistoryWriter(paths, "primary", clock) as primary,
        ):
            found = median_values(
                {
                    "without_us": writing(bare, written),
                    "with_us": writing(chained, written),
                    "witness_us": witnessing(primary, reports(records)),
                },
                rounds,
            )
    found["chain_us"] = found["with_us"] - found["without_us"]
    found["ratio"] = found["with_us"] / found["without_us"]
    return {key: round(value, 2) for key, value in found.items()}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2000, help="records in a turn (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each (default: %(default)s)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    result = measure(arguments.records, arguments.rounds)
    if arguments.format == "json":
        print(json.dumps(result, indent=2))
    else:
        for key, value in result.items():
            print(f"{key:<12} {value:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
