"""An entry of the table of forgeries, and what opponents do more than once."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from aiperf.records.bodies import EpochCompleted, EpochWitnessed
from aiperf.records.record import Record
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.step_evidence import append_rows, hash_rows, rows_of
from tests.support.forging import Change, rewrite

STEPS = 358
"""Steps of an epoch of the official run: 1,281,167 images, 8 times 448 a step."""

Forge = Callable[[RunPaths], object]


@dataclass(frozen=True)
class Forgery:
    """A forgery, its row in the list of classes, and what has to find it.

    `found` are words: a kind of damage and the stem of its file ("bounds replica-0000-1"), a rule
    that is not met ("rule plausible"), or a field that the replay gives otherwise
    ("replay morphs").
    """

    row: int
    name: str
    forge: Forge
    found: tuple[str, ...]
    base: str = "official"

    @property
    def replayed(self) -> bool:
        """True if only the replay need find it."""
        return any(word.startswith("replay ") for word in self.found)


def naively(change: Change) -> Forge:
    """Change records with fitting checksums, and leave the chain as it is."""
    return lambda paths: rewrite(paths, change, keep_chain=False)


def strongly(change: Change) -> Forge:
    """Change records; checksums, numbers, links, witnesses and cursors fit again."""
    return lambda paths: rewrite(paths, change)


def unheard(change: Change) -> Forge:
    """Change records and repair the chain, but not what the primary heard."""
    return lambda paths: rewrite(paths, change, repair_witness=False)


def same(record: Record) -> Record:
    """No change: what else was edited is chained again."""
    return record


def configure(paths: RunPaths, **settings: Any) -> None:
    """Edit the configuration in run.json; two underscores stand for a point."""
    document = json.loads(paths.run.read_text())
    for name, value in settings.items():
        section, _, key = name.partition("__")
        document["config"][section][key] = value
    paths.run.write_text(json.dumps(document, indent=2) + "\n")


def configured(change: Change = same, chained: bool = True, **settings: Any) -> Forge:
    """Edit run.json, change records, and chain all again."""

    def forge(paths: RunPaths) -> None:
        configure(paths, **settings)
        rewrite(paths, change, keep_chain=chained)

    return forge


def lines_of(paths: RunPaths, writer: str, keep: Callable[[int, int], bool]) -> None:
    """Keep some lines of a file, by their index and the number of all."""
    file = paths.history_file(writer)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for index, line in enumerate(lines) if keep(index, len(lines))))


def invented(paths: RunPaths, body: EpochCompleted, steps: int = STEPS) -> EpochCompleted:
    """An epoch with rows and hashes of its own."""
    rng = np.random.default_rng((body.trial, body.epoch, 1))
    rows = rows_of(body.epoch, np.full(steps, body.loss), rng.normal(1.2, 0.05, steps))
    append_rows(paths.evidence(body.trial), rows)
    return replace(body, evidence=hash_rows(rows), weights=f"{body.trial:032d}{body.epoch:032d}")


def more_epochs(paths: RunPaths, trial: int, epochs: range, every_ms: int) -> None:
    """Add epochs to a trial after that before them, with all that an epoch has."""
    learning_rates = {epoch: 0.1 * (1 - (epoch - 1) / 60) for epoch in epochs}
    before = epochs.start - 1

    def change(record: Record) -> list[Record]:
        body = record.body
        if not isinstance(body, EpochCompleted | EpochWitnessed) or (body.trial, body.epoch) != (trial, before):
            return [record]
        added = []
        for number, epoch in enumerate(epochs, start=1):
            later_ms = number * every_ms
            again: EpochCompleted | EpochWitnessed = replace(body, epoch=epoch)
            if isinstance(again, EpochCompleted):
                again = invented(paths, replace(again, learning_rate=learning_rates[epoch]))
            time_ms, monotonic_ms = record.time_ms + later_ms, record.monotonic_ms + later_ms
            added.append(replace(record, body=again, time_ms=time_ms, monotonic_ms=monotonic_ms))
        return [record, *added]

    rewrite(paths, change)
