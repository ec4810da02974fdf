"""What a replica does next, prepared ahead: the history list as the proposer sees it, and candidates on disk."""

from __future__ import annotations

import json
import logging
import random
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from aiperf.config.sections import Precision
from aiperf.config.settings import RunConfig
from aiperf.config.space import Point, Value, read_space
from aiperf.errors import AiperfError, TrialFailedError
from aiperf.files import write_atomically
from aiperf.history.files import HistoryReader
from aiperf.history.ledger import Ledger, TrialLedger
from aiperf.messages import Job
from aiperf.network.architecture import Architecture
from aiperf.network.store import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from aiperf.seeds import fold_seed
from replica.search.proposer import MAX_LANES, History, Lane, Proposal, Proposer
from replica.search.surrogate import Observation
from replica.search.tuner import PointLane, Result, Tried, suggest, suggest_randomly
from search_space.hyperparameters import apply_point, default_space_file
from search_space.limits import Limits, growth_limits, training_memory
from search_space.morph_json import apply_all, morph_data, morph_from_data
from search_space.resnet import resnet

log = logging.getLogger(__name__)

GIB = 2**30
ACTIVATION_BYTES: dict[Precision, int] = {"float32": 4, "mixed_bfloat16": 2, "mixed_float16": 2}


Training = tuple[str, frozenset[tuple[str, Value]]]
"""An architecture's hash and the hyperparameters that it is trained with."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job trains: an architecture, and its hyperparameters.

    `repeats`: the same had been trained before it was planned, as happens where a space has no other points left.
    """

    proposal: Proposal
    point: Point
    repeats: bool = False

    @property
    def training(self) -> Training:
        """What tells this plan from others."""
        return _training(self.proposal.architecture.hash, self.point)


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Trained weights that a child may start from."""

    trial: int
    architecture: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What a rank trains in: bytes of its accelerator (None: not known), and the arithmetic of the layers."""

    size_bytes: int | None = None
    precision: Precision = "float32"


def initial_architecture(config: RunConfig) -> Architecture:
    """The architecture that the search starts from."""
    depth = int(config.search.initial_architecture.removeprefix("resnet"))
    return resnet(depth, config.dataset.image_size, config.dataset.classes)


def limits_of(config: RunConfig, initial: Architecture, memory: Memory) -> Limits:
    """How far the search may grow; `memory` tells where the configuration is silent."""
    configured = config.replica.accelerator_memory_gib
    return growth_limits(
        initial,
        config.search.max_growth,
        memory.size_bytes if configured is None else round(configured * GIB),
        config.batch_size,
        ACTIVATION_BYTES[memory.precision],
    )


class Planner:
    """Plans the rounds of one replica. Its methods may be called from several threads, one after the other."""

    def __init__(self, replica: int, config: RunConfig, paths: RunPaths, memory: Memory) -> None:
        self._replica = replica
        self._config = config
        self._paths = paths
        self._reader = HistoryReader(paths)
        # Progress inside of epochs is nothing to the search, and there are millions of reports of it.
        self._ledger = Ledger(latest_progress_only=True)
        self._store = ArchitectureStore(paths)
        self._initial = initial_architecture(config)
        self._limits = limits_of(config, self._initial, memory)
        self._proposer = Proposer(self._initial, self._limits)
        file = paths.space if paths.space.exists() else default_space_file(config.run.dataset)
        self._space = read_space(file)
        self._prepared: tuple[int, History] | None = None
        self._lock = threading.Lock()

    def plan(self, job: Job) -> Plan:
        """What a job trains. Raises TrialFailedError ("search").

        The first trial of a run is the initial architecture; a round's own training takes the prepared candidate if
        there is a good one, else a new proposal; a later point tunes the architecture of the round's own training.
        """
        with self._lock:
            self._read()
            if job.resumes is not None and (resumed := self._resumed(job.resumes)) is not None:
                plan = resumed
            elif job.point > 0 and job.base is not None:
                plan = self._tune(job, job.base)
            elif job.trial == 1:
                plan = Plan(Proposal(self._initial, None), self._defaults())
            else:
                proposal = self._next(job.round)
                plan = Plan(proposal, self._best_point(proposal.parent))
            self._store.save(plan.proposal.architecture)
            return replace(plan, repeats=plan.training in self._trainings())

    def _resumed(self, trial: int) -> Plan | None:
        """What a broken-off trial trained; None where it had not come to that."""
        entry = self._ledger.trials.get(trial)
        if entry is None or entry.started is None:
            return None
        started = entry.started
        morphs = tuple(morph_from_data(data) for data in started.morphs)
        point = {**self._defaults(), **started.hyperparameters}
        return Plan(Proposal(self._store.load(started.architecture), started.parent, morphs), point)

    def still_new(self, plan: Plan) -> bool:
        """Whether nobody has trained, or is training, the same since it was planned."""
        with self._lock:
            self._read()
            return plan.repeats or plan.training not in self._trainings()

    def _next(self, round_number: int) -> Proposal:
        history = self._history()
        return self._candidate(round_number, history) or self._propose(round_number, history)

    def _tune(self, job: Job, base: int) -> Plan:
        entry = self._ledger.trials.get(base)
        if entry is None or entry.started is None:
            raise TrialFailedError("search", f"trial {base}, whose hyperparameters are to be tuned, is not recorded")
        architecture = self._store.load(entry.started.architecture)
        suggest_point = suggest_randomly if self._config.search.hpo == "random" else suggest
        seed = fold_seed(job.seed, "hpo", job.point, self._replica)
        # Replicas that tune at the same moment draw from different points.
        lane = PointLane(self._replica, min(self._config.run.replicas, MAX_LANES))
        trained = self._trainings()
        tried = replace(
            self._tried(),
            fits=lambda point: self._fits(architecture, point) and self._training(architecture, point) not in trained,
        )
        point = suggest_point(self._space, tried, seed, lane)
        tuned = apply_point(architecture, point)
        morphs = tuple(morph_from_data(data) for data in entry.started.morphs)
        grown = Proposal(tuned, entry.started.parent, morphs if tuned == architecture else ())
        return Plan(grown, {**self._defaults(), **point})

    def _trainings(self) -> set[Training]:
        """Everything that was trained, or is being trained, in this run."""
        started = (entry.started for entry in self._ledger.trials.values())
        return {_training(body.architecture, body.hyperparameters) for body in started if body is not None}

    def _training(self, architecture: Architecture, point: Point) -> Training:
        """What a point would train: to train the same again would tell nothing."""
        return _training(apply_point(architecture, point).hash, {**self._defaults(), **point})

    def _fits(self, architecture: Architecture, point: Point) -> bool:
        """Whether the accelerator's memory takes the training of a point, by the estimate of the limits."""
        memory = self._limits.memory_bytes
        batch = int(point.get("batch_size", self._config.batch_size))
        needed = training_memory(apply_point(architecture, point), batch, self._limits.activation_bytes)
        return memory is None or needed <= memory

    def _defaults(self) -> Point:
        training = self._config.training
        return {
            "batch_size": self._config.batch_size,
            "learning_rate": training.learning_rate,
            "momentum": training.momentum,
            "label_smoothing": training.label_smoothing,
        }

    def _best_point(self, parent: str | None) -> Point:
        """The hyperparameters with which the parent did best; the defaults where it was never trained."""
        for entry in self._ranked():
            assert entry.started is not None
            if entry.started.architecture == parent:
                known = self._defaults()
                return {**known, **{k: v for k, v in entry.started.hyperparameters.items() if k in known}}
        return self._defaults()

    def _tried(self) -> Tried:
        """What all replicas have tried of the space in this run."""
        results: list[Result] = []
        pending: list[Point] = []
        names = {parameter.name for parameter in self._space}
        for number in sorted(self._ledger.trials):
            entry = self._ledger.trials[number]
            if entry.started is None or entry.started.point == 0:
                continue
            point = {name: value for name, value in entry.started.hyperparameters.items() if name in names}
            if entry.failed is not None and entry.failed.body.kind == "out_of_memory":
                results.append(Result(point, 0.0, out_of_memory=True))
            elif entry.ended is not None and entry.accuracy is not None:
                results.append(Result(point, entry.accuracy))
            elif entry.failed is None and self._ledger.died_ms(entry) is None:
                pending.append(point)
        return Tried(tuple(results), tuple(pending))

    def prepare(self, round_number: int) -> None:
        """Store a candidate for a later round; nothing happens while the history has not moved on."""
        with self._lock:
            self._read()
            history = self._history()
            if (round_number, history) == self._prepared:
                return
            proposal = self._propose(round_number, history)
            document = {
                "hash": proposal.architecture.hash,
                "parent": proposal.parent,
                "morphs": [morph_data(morph) for morph in proposal.morphs],
            }
            path = self._paths.candidate(self._replica, round_number)
            write_atomically(path, json.dumps(document).encode() + b"\n")
            self._prepared = (round_number, history)

    def weights_for(self, proposal: Proposal) -> KeptWeights | None:
        """Kept weights of the proposal's parent, if children inherit and there are any."""
        if self._config.search.initial_weights != "inherit" or not proposal.morphs:
            return None  # the initial architecture, or one whose kernels were tuned: no morphs lead to it
        with self._lock:
            for entry in self._ranked():
                assert entry.started is not None
                name = entry.started.architecture
                if name == proposal.parent and self._paths.weights(name, entry.trial).exists():
                    return KeptWeights(entry.trial, name)
        return None

    def prune_weights(self) -> None:
        """Delete this replica's weights of trials that are not among the best `search.kept_weights` of the run."""
        with self._lock:
            self._read()
            for entry in self._ranked()[self._config.search.kept_weights :]:
                assert entry.started is not None
                if entry.started.replica == self._replica:
                    self._forget(self._paths.weights(entry.started.architecture, entry.trial))

    @staticmethod
    def _forget(path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # disk space, not correctness: the trial has ended well
            log.warning("%s cannot be deleted: %s", path, error)

    def _read(self) -> None:
        batch = self._reader.read_new()
        self._ledger.add(batch.records)
        for damage in batch.damages:
            log.error("damaged record in the history list: %s", damage)

    def _ranked(self) -> list[TrialLedger]:
        done = [e for e in self._ledger.completed_trials() if e.started is not None and e.accuracy is not None]
        return sorted(done, key=lambda entry: (-(entry.accuracy or 0.0), entry.trial))

    def _history(self) -> History:
        completed: list[Observation] = []
        pending: list[Architecture] = []
        failed: list[str] = []
        for number in sorted(self._ledger.trials):
            entry = self._ledger.trials[number]
            if entry.started is None:
                continue
            name = entry.started.architecture
            if entry.ended is not None and entry.accuracy is not None:
                accuracy = entry.search_accuracy
                assert accuracy is not None
                completed.append(Observation(self._store.load(name), accuracy))
            elif entry.failed is not None or self._ledger.died_ms(entry) is not None:
                failed.append(name)
            else:
                pending.append(self._store.load(name))
        return History(tuple(_best_of_each(completed)), tuple(pending), tuple(failed))

    def _propose(self, round_number: int, history: History) -> Proposal:
        # Folded by round, not by trial: the id of a later trial is not known while its candidate is prepared.
        rng = random.Random(fold_seed(self._config.run.seed, "search", round_number, self._replica))
        lane = Lane.of(self._replica, self._config.run.replicas)
        if self._config.search.strategy == "random":
            return self._proposer.propose_randomly(history, rng, lane)
        return self._proposer.propose(history, rng, lane)

    def _candidate(self, round_number: int, history: History) -> Proposal | None:
        path = self._paths.candidate(self._replica, round_number)
        try:
            document = json.loads(path.read_bytes())
            morphs = tuple(morph_from_data(data) for data in document["morphs"])
            architecture = apply_all(self._store.load(document["parent"]), morphs)
            if architecture.hash != document["hash"]:
                raise ValueError(f"its morphs make {architecture.hash}, not {document['hash']}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AiperfError) as error:
            log.error("candidate %s is damaged and is not used: %s", path, error)
            return None
        if architecture.hash in history.hashes:
            return None
        return Proposal(architecture, document["parent"], morphs)


def _training(architecture: str, point: Point) -> Training:
    # The kernel size is in the architecture already.
    return architecture, frozenset(item for item in point.items() if item[0] != "kernel_size")


def _best_of_each(observations: list[Observation]) -> list[Observation]:
    """One observation an architecture, its best: the points of a round count as one result."""
    best: dict[str, Observation] = {}
    for observation in observations:
        name = observation.architecture.hash
        if name not in best or observation.accuracy > best[name].accuracy:
            best[name] = observation
    return list(best.values())
