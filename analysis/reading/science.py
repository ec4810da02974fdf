"""Records of scientific workloads: the cost of their images, and their quality.

A cost is passes times the counts of the run's networks, by rule set `science-1`
(`aiperf.network.science`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from aiperf.errors import AiperfError, UncountedLayerError
from aiperf.facts import EpochFacts
from aiperf.network.operations import KERNEL_KINDS, LayerCount, NetworkCount, Operations, count
from aiperf.network.science import SCIENCE_1, Passes, training_operations
from aiperf.records.bodies import WorkloadStarted
from aiperf.records.damage import Damage
from aiperf.records.ledger import Ledger
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths

_HASH = re.compile("[0-9a-f]{16}")

MOST_PASSES = 1000
"""Upper limit for the passes of one network for one image: more are damage."""

NETWORK = "network"
"""Key of a pass: the name of the network that it runs through."""

COUNTS = ("forward", "backward", "input_gradient")
"""Keys of a pass: how often; one that is left out is 0."""


@dataclass(frozen=True, slots=True)
class WorkloadCost:
    """The passes of an image of a workload."""

    training: tuple[Passes, ...]
    evaluation: tuple[Passes, ...]
    further_training: int = 0
    """Operations of an image outside of networks when it is trained."""
    further_evaluation: int = 0

    @property
    def operations(self) -> Operations:
        """Operations: `forward` evaluates an image, `forward` and `backward` train one."""
        evaluation = training_operations(self.evaluation) + self.further_evaluation
        return Operations(evaluation, training_operations(self.training) + self.further_training - evaluation)

    @property
    def paired(self) -> Iterator[LayerCount]:
        """The layers of training that run forward and backward, as often as they do both."""
        for passes in self.training:
            for _ in range(min(passes.forward, passes.backward)):
                yield from passes.count.layers

    @property
    def single(self) -> Iterator[LayerCount]:
        """The layers of training that run in one direction alone, with its operations."""
        for passes in self.training:
            both = min(passes.forward, passes.backward)
            for layer in passes.count.layers:
                directions = (
                    (layer.operations.forward, passes.forward - both),
                    (layer.operations.backward, passes.backward - both),
                    (layer.operations.forward if layer.kind in KERNEL_KINDS else 0, passes.input_gradient),
                )
                for operations, times in directions:
                    yield from [layer._replace(operations=Operations(operations, 0))] * times

    @property
    def evaluated(self) -> Iterator[LayerCount]:
        """The layers that evaluate an image, as often as they do."""
        yield from replace(self, training=self.evaluation).single


@dataclass(frozen=True, slots=True)
class WorkloadCosts:
    """The costs of all trainings of a run whose networks and passes are intact, by trial."""

    by_trial: Mapping[int, WorkloadCost]
    damages: tuple[Damage, ...] = ()


def read_costs(paths: RunPaths, ledger: Ledger) -> WorkloadCosts:
    """Read and count every network that a workload's training names."""
    networks = _Networks(paths)
    known: dict[tuple[object, ...], WorkloadCost | str] = {}
    costs: dict[int, WorkloadCost] = {}
    damages: list[Damage] = []
    for number, trial in sorted(ledger.trials.items()):
        body = trial.workload
        if body is None:
            continue
        passes = body.training_passes, body.evaluation_passes, body.further_training, body.further_evaluation
        key = (*sorted(body.networks.items()), str(passes))
        if key not in known:
            known[key] = _cost(body, networks)
        found = known[key]
        if isinstance(found, str):
            where = f"the passes of trial {number}: {found}"
            damages.append(Damage(f"history/{trial.writer}.jsonl", None, "bounds", where))
        else:
            costs[number] = found
    return WorkloadCosts(costs, (*networks.damages, *damages))


class _Networks:
    """The networks of a run, each counted once."""

    def __init__(self, paths: RunPaths) -> None:
        self._store = ArchitectureStore(paths, most=1)
        self._paths = paths
        self._counts: dict[str, NetworkCount | None] = {}
        self.damages: list[Damage] = []

    def count(self, name: str) -> NetworkCount | None:
        """The count of a network by its hash; None if it has a damage."""
        if name not in self._counts:
            self._counts[name] = None
            problem = self._read(name)
            if problem:
                self.damages.append(Damage(f"models/{name}/architecture.json", None, "architecture", problem))
        return self._counts[name]

    def _read(self, name: str) -> str:
        if _HASH.fullmatch(name) is None:  # a path of an opponent may lead anywhere
            return "its name is not the hash of an architecture"
        try:
            self._counts[name] = count(self._store.load(name), SCIENCE_1)
        except UncountedLayerError as error:
            return str(error)
        except AiperfError as error:
            return str(error).removeprefix(f"{self._paths.architecture(name)}: ")
        return ""


def _cost(body: WorkloadStarted, networks: _Networks) -> WorkloadCost | str:
    """The cost of a training's images, or the problem of its passes."""
    if not body.training_passes:
        return "no network is trained"
    if min(body.further_training, body.further_evaluation) < 0:
        return f"{body.further_training} and {body.further_evaluation} further operations"
    training, evaluation = (
        [_passes(item, body, networks) for item in passes] for passes in (body.training_passes, body.evaluation_passes)
    )
    problem = next((item for item in (*training, *evaluation) if isinstance(item, str)), None)
    if problem is not None:
        return problem
    return WorkloadCost(
        tuple(item for item in training if isinstance(item, Passes)),
        tuple(item for item in evaluation if isinstance(item, Passes)),
        body.further_training,
        body.further_evaluation,
    )


def _passes(item: Mapping[str, str | int], body: WorkloadStarted, networks: _Networks) -> Passes | str:
    name, times = item.get(NETWORK), [item.get(key, 0) for key in COUNTS]
    if not isinstance(name, str) or name not in body.networks:
        return f"a pass of the network {name}, which is none of {', '.join(sorted(body.networks))}"
    if foreign := sorted(item.keys() - {NETWORK, *COUNTS}):
        return f"a pass with the key {foreign[0]}"
    numbers = [value for value in times if isinstance(value, int) and 0 <= value <= MOST_PASSES]
    if len(numbers) < len(times):
        return f"{times} passes of the network {name}"
    counted = networks.count(body.networks[name])
    return f"the network {name} cannot be counted" if counted is None else Passes(counted, *numbers)


def measured_of(facts: EpochFacts, body: WorkloadStarted) -> dict[str, float | None]:
    """The measures that the target names; None for those that an epoch does not have.

    The first one is also the quality of the epoch, which is negative if lower is better.
    """
    values: dict[str, float | None] = {name: (facts.measures or {}).get(name) for name in body.target}
    first = next(iter(body.target), None)
    if first is not None and values[first] is None and facts.quality is not None:
        values[first] = facts.quality if body.higher else -facts.quality
    return values


def reaches_target(facts: EpochFacts, body: WorkloadStarted) -> bool:
    """True if every measure of the target is there, and at or beyond its value."""
    known = known_of(measured_of(facts, body))
    if not known or len(known) < len(body.target):
        return False
    if body.higher:
        return all(value >= body.target[name] for name, value in known.items())
    return all(value <= body.target[name] for name, value in known.items())


def known_of(values: Mapping[str, float | None]) -> dict[str, float]:
    """The measures that an epoch has."""
    return {name: value for name, value in values.items() if value is not None}
