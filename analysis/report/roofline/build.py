"""The roofline of a run from its records and its nodes' results of the micro suite.

The roofline time of an image is the sum over layers and passes of max(operations / P, bytes / B),
with P the best `gemm` in the precision of the training and B the `triad` of the same kind of node
(Williams et al. 2009). Bytes are the layer's inputs and outputs, and its weights once a batch. A
share is that time over the measured time.
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from aiperf.errors import AiperfError
from aiperf.network.operations import LayerCount, NetworkCount, count
from aiperf.network.roofline import Bound, ImageTimes, Peaks, bound_of, image_times
from aiperf.records.bodies import TrialStarted, WorkloadStarted
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.micro_results import SUITE_PRECISIONS, MicroRow
from analysis.reading.run_data import RunData
from analysis.report.devices import Machine, devices_of, machines, replicas_of_node
from analysis.report.rates.pace import trained_of
from analysis.report.rates.work_intervals import WorkInterval, work_intervals
from analysis.report.roofline.parts import CeilingPart, OperatorPart, RooflinePart, TrialCeilingPart

MOST_PROBLEMS = 100

Kind = tuple[str, str]
"""Model of a device, and precision."""


@dataclass(frozen=True, slots=True)
class ReplicaPeaks:
    """Ceilings of a replica's devices, which are `factor` times those that were measured."""

    ceiling: CeilingPart
    peaks: Peaks
    factor: float


@dataclass(frozen=True, slots=True)
class ImageLayers:
    """The layers of one image: trained forward and backward, in one direction alone, evaluated."""

    paired: tuple[LayerCount, ...]
    single: tuple[LayerCount, ...]
    evaluated: tuple[LayerCount, ...]


def roofline_part(data: RunData, score_ops: float | None, further: Sequence[MicroRow] = ()) -> RooflinePart:
    """The part of the report; `further` are results that were measured outside the run.

    A simulated run claims nothing of its devices, and has no shares.
    """
    rows = [*(row for node in data.measured for row in node.results), *further]
    problems = [f"{node.host}: {problem}" for node in data.measured for problem in node.problems]
    ceilings = ceilings_of(rows)
    simulated = data.manifest.config.training.trainer == "simulated"
    shares = Shares(data, {} if simulated else ceilings)
    machine_ops = shares.machine_ops()
    return RooflinePart(
        ceilings=tuple(ceilings.values()),
        operators=tuple(operators_of(rows)),
        trials=shares.trials,
        machine_ops=machine_ops,
        score_share=score_ops / machine_ops if score_ops is not None and machine_ops else None,
        share_of_ceiling=shares.whole(),
        problems=tuple(problems[:MOST_PROBLEMS]),
    )


def _median(rows: Iterable[MicroRow]) -> MicroRow:
    """The row of the median node; of an even number, the slower one."""
    ordered = sorted(rows, key=lambda row: row.ops_per_s)
    # A row and not a mean: its rate, batch size, spread and bound belong together.
    return ordered[(len(ordered) - 1) // 2]


def ceilings_of(rows: Iterable[MicroRow]) -> dict[Kind, CeilingPart]:
    """The ceilings of each kind of node in each precision; of several stacks, the faster one's.

    Rows that do not name their device are left out.
    """
    groups: dict[tuple[str, int, str, str], dict[str, list[MicroRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        # The number of CPUs is part of the key: CPUs are measured together, so one model with more
        # of them is another kind of node, and a median over both would be of neither.
        if row.kind == "ceiling" and row.device is not None:
            groups[row.device, row.cpus or 0, row.stack, row.precision][row.operator].append(row)
    found: dict[Kind, CeilingPart] = {}
    for (device, cpus, stack, precision), own in sorted(groups.items()):
        if not own["gemm"] or not own["triad"]:
            continue
        gemm, triad = _median(own["gemm"]), _median(own["triad"])
        part = CeilingPart(
            device=device,
            cpus=cpus or None,
            stack=stack,
            precision=precision,
            nodes=len(own["gemm"]),
            gemm_ops=gemm.ops_per_s,
            triad_bytes_per_s=triad.bytes_per_s,
            upper_bound=triad.upper_bound,
            noisy=gemm.noisy or triad.noisy,
        )
        known = found.get((device, precision))
        if known is None or known.gemm_ops < part.gemm_ops:
            found[device, precision] = part
    return found


def operators_of(rows: Iterable[MicroRow]) -> Iterable[OperatorPart]:
    """Every pass, on the median node of each kind, in the order of the suite."""
    groups: dict[tuple[str, ...], list[MicroRow]] = defaultdict(list)
    for row in rows:
        place = (row.device or "", row.stack, row.precision, row.operator, row.kind, row.shape, row.direction)
        if row.kind == "ceiling":  # each node has its own best size
            place = (*place[:5], "", place[6])
        groups[place].append(row)
    for own in groups.values():
        row = _median(own)
        yield OperatorPart(
            device=row.device or "",
            stack=row.stack,
            precision=row.precision,
            operator=row.operator,
            kind=row.kind,
            shape=row.shape,
            direction=row.direction,
            batch=row.batch,
            ops_per_s=row.ops_per_s,
            bytes_per_s=row.bytes_per_s,
            images_per_s=row.images_per_s,
            share_of_ceiling=row.share_of_ceiling,
            bound=row.bound,
            spread=row.spread,
            noisy=row.noisy,
            nodes=len(own),
        )


class Shares:
    """The work of a run next to the ceilings of its devices."""

    def __init__(self, data: RunData, ceilings: dict[Kind, CeilingPart]) -> None:
        self._data = data
        self._ceilings = ceilings
        self._machines: dict[int, Machine] = machines(data) if ceilings else {}
        self._counts: dict[str, NetworkCount | None] = {}
        self._known: dict[tuple[str, Peaks, int], tuple[Bound | None, ImageTimes]] = {}
        self._seconds: dict[int, float] = {}
        """Roofline time of each trial's counted images."""
        self.trials = tuple(self._trials()) if ceilings else ()

    def peaks_of(self, replica: int, precision: str) -> ReplicaPeaks | None:
        """The ceilings of a replica's devices in the arithmetic of a training; None: not known."""
        machine, facts = self._machines.get(replica), self._data.system.get(str(replica))
        if machine is None or facts is None or precision not in SUITE_PRECISIONS:
            return None
        device = facts.cpu_model if machine.on_cpus else machine.name
        ceiling = self._ceilings.get((device or "", SUITE_PRECISIONS[precision]))
        if ceiling is None or machine.on_cpus != (ceiling.cpus is not None):
            return None
        cpus = machine.count / replicas_of_node(self._data)
        # CPUs are measured together, accelerators one at a time (`CeilingPart.cpus`).
        own = cpus / ceiling.cpus if ceiling.cpus else float(devices_of(self._data, replica))
        peaks = Peaks(ceiling.gemm_ops, ceiling.triad_bytes_per_s, ceiling.precision)
        return ReplicaPeaks(ceiling, peaks.times(own), own)

    def _trials(self) -> Iterable[TrialCeilingPart]:
        for number, own in work_intervals(self._data).items():
            part = self._trial(number, own)
            if part is not None:
                yield part

    def _trial(self, number: int, own: list[WorkInterval]) -> TrialCeilingPart | None:
        begun = self._data.ledger.trials[number].begun
        assert begun is not None  # it has intervals
        found, layers = self.peaks_of(begun.replica, begun.precision), self._layers(number, begun)
        seconds = (max(piece.end_ms for piece in own) - own[0].begin_ms) / 1000
        batch = self._batch(begun)
        if found is None or layers is None or seconds <= 0:
            return None
        whole, times = self._ceiling(trained_of(begun), layers, found.peaks, batch)
        if whole is None:
            return None
        trained, evaluated = self._images[number]
        self._seconds[number] = trained * times.training + evaluated * times.evaluation
        return TrialCeilingPart(
            trial=number,
            device=found.ceiling.device,
            precision=found.ceiling.precision,
            intensity=whole.intensity,
            bound=whole.bound,
            ops=sum(piece.operations for piece in own) / seconds / found.factor,
            share_of_ceiling=self._seconds[number] / seconds,
        )

    @cached_property
    def _images(self) -> dict[int, tuple[int, int]]:
        """Images of each trial that count, trained and evaluated."""
        trained, evaluated = self._data.work.columns.images_done(self._data.end_ms)
        return dict(zip(self._data.work.trials, zip(trained.tolist(), evaluated.tolist(), strict=True), strict=True))

    def _layers(self, number: int, begun: TrialStarted | WorkloadStarted) -> ImageLayers | None:
        """The layers that an image runs through; None if they cannot be counted."""
        if isinstance(begun, TrialStarted):
            counted = self._count(begun.architecture)
            return ImageLayers(counted.layers, (), counted.layers) if counted is not None else None
        cost = self._data.costs.by_trial.get(number)
        return ImageLayers(tuple(cost.paired), tuple(cost.single), tuple(cost.evaluated)) if cost is not None else None

    def _batch(self, begun: TrialStarted | WorkloadStarted) -> int:
        """Images of a step on one device, which moves the weights once."""
        own = begun.hyperparameters.get("batch_size")
        try:
            return max(1, int(own or self._data.manifest.config.batch_size))
        except (AiperfError, ValueError):  # a data set that is not here, a hyperparameter that is not a number
            return 1

    def _ceiling(self, name: str, layers: ImageLayers, peaks: Peaks, batch: int) -> tuple[Bound | None, ImageTimes]:
        """Find the ceiling of an architecture on some devices; several trials train the same."""
        key = name, peaks, batch
        if key not in self._known:
            both = image_times(layers.paired, peaks, batch).training
            # `evaluation` is the time of forward passes alone: layers that run in one direction
            # have its operations as those of a forward pass (`WorkloadCost.single`).
            single = image_times(layers.single, peaks, batch).evaluation
            evaluation = image_times(layers.evaluated, peaks, batch).evaluation
            bound = bound_of((*layers.paired, *layers.single), peaks, batch)
            self._known[key] = bound, ImageTimes(both + single, evaluation)
        return self._known[key]

    def _count(self, name: str) -> NetworkCount | None:
        if name not in self._counts:
            # Before the attempt: an architecture that cannot be counted is not tried again.
            self._counts[name] = None
            if name in self._data.architectures:
                with contextlib.suppress(AiperfError):  # a damage of its own
                    self._counts[name] = count(ArchitectureStore(self._data.paths).load(name))
        return self._counts[name]

    def machine_ops(self) -> float | None:
        """P of all replicas' devices in the one precision of the run; None: not known."""
        trials = self._data.ledger.trials.values()
        precisions = {trial.begun.precision for trial in trials if trial.begun is not None}
        # Peaks of different precisions have no sum that a share could refer to.
        if len(precisions) != 1 or not self._machines:
            return None
        precision = precisions.pop()
        every = [self.peaks_of(replica, precision) for replica in self._data.ledger.replicas]
        return None if None in every else sum(found.peaks.ops_per_s for found in every if found is not None)

    def whole(self) -> float | None:
        """The roofline time of all counted work over the time of all replicas; None: not known."""
        counted = {number for number, images in self._images.items() if any(images)}
        replicas = self._data.manifest.config.run.replicas
        # A trial without a ceiling would lack in the sum, and the share would be too small.
        if not counted or counted != set(self._seconds) or not self._data.duration_ms:
            return None
        return sum(self._seconds.values()) / (replicas * self._data.duration_ms / 1000)
