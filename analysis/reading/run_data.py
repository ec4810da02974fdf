"""A run directory in memory: its ledger, the cost of every architecture, its start and its end."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from aiperf.network.operations import NOTHING, Operations
from aiperf.records.bodies import TrialStarted
from aiperf.records.chain import hash_of
from aiperf.records.columns import PLACE
from aiperf.records.damage import Damage
from aiperf.records.entries import TrialLedger
from aiperf.records.fencing import PRIMARY, reading_order
from aiperf.records.ledger import Ledger
from aiperf.rules.work import Course
from aiperf.run_directory.manifest import Manifest, read_manifest
from aiperf.run_directory.micro_results import NodeResult
from aiperf.run_directory.paths import RunPaths
from analysis.reading.architectures import ArchitectureFacts, Architectures
from analysis.reading.history import history_bytes, read_history, submit_primaries
from analysis.reading.integrity.all_checks import Inspection, in_order
from analysis.reading.integrity.view import WriterRecords
from analysis.reading.meters import Meters, read_meters
from analysis.reading.micro import read_measured
from analysis.reading.nodes import NodeFacts, damage_of_system, read_primary_node, read_system
from analysis.reading.science import WorkloadCosts, read_costs
from analysis.reading.telemetry import Telemetry, gather_telemetry, submit_telemetry
from analysis.reading.uncounted import Uncounted, check_superseded
from analysis.reading.work import Work
from analysis.reading.workers import Workers, no_garbage_collection

MANY_BYTES = 32 * 2**20
"""Size of a history from which on starting processes for it pays off."""


@dataclass(frozen=True)
class RunData:
    """The content of a run's records. Times are UTC milliseconds on the primary's clock."""

    manifest: Manifest
    ledger: Ledger
    architectures: dict[str, ArchitectureFacts]
    damages: tuple[Damage, ...]
    """Deviations from the records of an honest run (`analysis.reading.integrity`)."""
    notices: tuple[str, ...]
    """Facts for readers that are not damage: work that does not count."""
    chained: bool
    """True if every record carries the hash of the one before."""
    unfinished_lines: tuple[str, ...]
    start_ms: int | None
    end_ms: int
    ended: str
    system: dict[str, NodeFacts]
    """The node of each replica, by replica."""
    primary_node: NodeFacts | None
    """The node of the primary; None if it is not known."""
    telemetry: Telemetry
    meters: Meters
    """Meters outside of the nodes."""
    measured: tuple[NodeResult, ...]
    """Results of the micro suite, of the nodes that were measured."""
    own_space: bool
    """True if the run directory holds a space of hyperparameters."""
    paths: RunPaths
    costs: WorkloadCosts
    """Costs of the images of scientific workloads."""
    computed: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Results that several parts of a report need, by name: each is computed once."""

    @property
    def duration_ms(self) -> int:
        """Duration from the release of the replicas to the end; 0 if they were never released."""
        return max(0, self.end_ms - self.start_ms) if self.start_ms is not None else 0

    @property
    def is_science(self) -> bool:
        """True if the run trains scientific workloads in place of AutoML."""
        return self.manifest.config.run.suite == "science"

    @cached_property
    def work(self) -> Work:
        """The work of every trial by id, without that before the release or after the end."""
        start_ms = self.start_ms if self.start_ms is not None else self.end_ms
        costs = {number: self._cost_of(entry) for number, entry in self.ledger.trials.items()}
        return Work(self.ledger, costs, start_ms, self.end_ms)

    @cached_property
    def damage_texts(self) -> tuple[str, ...]:
        """All damages in words."""
        return tuple(map(str, self.damages))

    @cached_property
    def course(self) -> Course:
        """All work over time."""
        return Course(self.work.columns)

    def _cost_of(self, trial: TrialLedger) -> Operations:
        """Operations per image of a trial; none if its networks cannot be read (a damage)."""
        if (costs := self.costs.by_trial.get(trial.trial)) is not None:
            return costs.operations
        facts = self.architectures.get(trial.started.architecture) if trial.started else None
        return facts.cost if facts else NOTHING


def read_run(paths: RunPaths, now_ms: int | None = None) -> RunData:
    """Read a run. `now_ms` is the end to assume for a running one (default: its last record).

    Raises RunDirectoryError if it is not a run.
    """
    with no_garbage_collection():
        return _read(paths, now_ms)


def _read(paths: RunPaths, now_ms: int | None) -> RunData:
    manifest = read_manifest(paths)
    ledger, uncounted = Ledger(), Uncounted()
    inspection = Inspection(paths, manifest, ledger)
    with Workers(several=history_bytes(paths) > MANY_BYTES) as workers:
        primaries = submit_primaries(paths, workers)
        samples = submit_telemetry(paths, workers)  # for the processes that wait for the primaries' files
        files = read_history(paths, workers, primaries, ledger, inspection.view.primary)
        gathered = _gather(files, inspection, uncounted)
        architectures = Architectures(paths, gathered.architectures, inspection.claims(), workers)
        # Behind the last file: only then are the offsets of all clocks known.
        telemetry = gather_telemetry(samples, ledger.offsets_ms)
        nodes = read_measured(paths, ledger)
        costs = read_costs(paths, ledger)
        also = [
            *_described(paths, manifest),
            *_unfinished(gathered.unfinished, ledger),
            *nodes.damages,
            *costs.damages,
            *check_superseded(uncounted),
        ]
        found = inspection.damages(architectures, workers)
        damages = in_order([*architectures.damages(), *found, *also])
    end_ms, ended = _end(ledger, now_ms)
    return RunData(
        manifest=manifest,
        ledger=ledger,
        architectures=architectures.found,
        damages=damages,
        notices=uncounted.notices(),
        chained=inspection.view.chained,
        unfinished_lines=tuple(gathered.unfinished),
        start_ms=ledger.released.time_ms if ledger.released else None,
        end_ms=end_ms,
        ended=ended,
        system=read_system(paths),
        primary_node=read_primary_node(paths),
        telemetry=telemetry,
        meters=read_meters(paths),
        measured=nodes.results,
        own_space=paths.space.exists(),
        paths=paths,
        costs=costs,
    )


@dataclass(slots=True)
class _Gathered:
    """Findings in the files of a history in addition to records and damages."""

    architectures: dict[str, None] = field(default_factory=dict)
    """Architectures by hash, in the order in which they are named."""
    unfinished: list[str] = field(default_factory=list)


def _gather(files: Iterable[WriterRecords], inspection: Inspection, uncounted: Uncounted) -> _Gathered:
    """Fold the files of a history into the ledger, and check each."""
    found, ledger = _Gathered(), inspection.view.ledger
    for read in files:
        writer = uncounted.take_from(read, ledger.fences)
        _fold(ledger, writer)
        inspection.add(writer)
        found.unfinished += [f"{writer.writer}.jsonl"] if writer.unfinished else []
        found.architectures.update(dict.fromkeys(_architectures(writer)))
    return found


def _unfinished(names: Iterable[str], ledger: Ledger) -> Iterator[Damage]:
    """Primaries' unfinished lines in a run that has ended: the last one ends after all others."""
    for name in names if ledger.run_ended is not None else ():
        if name.startswith(PRIMARY) and reading_order(name.removesuffix(".jsonl")) <= _last(ledger):
            yield Damage(
                f"history/{name}", None, "record", "an unfinished line of a primary", "none: the run has ended"
            )


def _last(ledger: Ledger) -> tuple[bool, int, str]:
    """The place of the primary that ended the run in the order of reading."""
    return min(map(reading_order, ledger.last_of_writer_ms), default=reading_order(PRIMARY))


def _fold(ledger: Ledger, read: WriterRecords) -> None:
    """Fold a file into the ledger, without lines that have the number of an earlier one."""
    repeated = {*read.repeated.tolist()}
    records = [record for record, number in zip(read.records, read.numbers, strict=True) if number - 1 not in repeated]
    columns = read.columns.only(lambda rows: ~np.isin(rows[:, PLACE], read.repeated)) if repeated else read.columns
    ledger.fold(read.writer, records, columns)


def _described(paths: RunPaths, manifest: Manifest) -> Iterator[Damage]:
    """Damages of the files that describe the nodes and the space of hyperparameters."""
    if problem := damage_of_system(paths):
        yield Damage(paths.system.name, None, "record", problem)
    if manifest.space_hash is None:
        return
    try:
        found = hash_of(paths.space.read_bytes())
    except OSError:
        yield Damage(paths.space.name, None, "missing", "the space of hyperparameters is missing")
        return
    if found != manifest.space_hash:
        yield Damage(paths.space.name, None, "record", f"its hash is {found}", f"{manifest.space_hash}, as in run.json")


def _architectures(writer: WriterRecords) -> Iterator[str]:
    """Name the architectures that are trained; in a chained file also their parents."""
    for record in writer.records:
        if isinstance(record.body, TrialStarted):
            yield record.body.architecture
            if writer.lines.chained and record.body.parent is not None:
                yield record.body.parent


def _end(ledger: Ledger, now_ms: int | None) -> tuple[int, str]:
    if ledger.run_ended is not None:
        end_ms, ended = ledger.run_ended.body.end_ms, str(ledger.run_ended.body.reason)
    else:
        end_ms, ended = ledger.last_ms if now_ms is None else now_ms, "unfinished"
    if ledger.released is not None:
        end_ms = min(end_ms, ledger.released.time_ms + ledger.released.body.duration_ms)
    return end_ms, ended
