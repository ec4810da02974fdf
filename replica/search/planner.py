"""The plan of a replica's next training: architecture and hyperparameters."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, replace

from aiperf.cli.units import GIB
from aiperf.config.sections import Precision
from aiperf.config.settings import RunConfig
from aiperf.config.space import Hyperparameters, read_space
from aiperf.errors import EnvironmentNotReadyError
from aiperf.messages import Job
from aiperf.network.architecture import Architecture
from aiperf.run_directory.paths import RunPaths
from aiperf.seeds import fold_seed
from replica.search.candidates import Candidates
from replica.search.kept_weights import KeptWeights, find_weights, prune_weights
from replica.search.knowledge import Knowledge, Training, training_of
from replica.search.lanes import Lane
from replica.search.observations import Observations
from replica.search.strategies import STRATEGIES
from replica.search.strategies.contract import Proposal
from replica.search.tuners import TUNERS
from search_space.hyperparameters import apply_hyperparameters, default_space_file
from search_space.limits import Limits, growth_limits, training_memory
from search_space.morph_json import morph_from_data
from search_space.resnet import resnet

ACTIVATION_BYTES: dict[Precision, int] = {"float32": 4, "mixed_bfloat16": 2, "mixed_float16": 2}


@dataclass(frozen=True, slots=True)
class Plan:
    """The training of a job: an architecture, and its hyperparameters.

    `repeats` is True if the same had been trained before: the space had nothing else left.
    """

    proposal: Proposal
    hyperparameters: Hyperparameters
    repeats: bool = False

    @property
    def training(self) -> Training:
        """The identity of the training."""
        return training_of(self.proposal.architecture.hash, self.hyperparameters)


@dataclass(frozen=True, slots=True)
class Memory:
    """A rank's accelerator: bytes of memory (None: unknown), and the arithmetic of the layers."""

    size_bytes: int | None = None
    precision: Precision = "float32"


def initial_architecture(config: RunConfig) -> Architecture:
    """The architecture that the search starts from."""
    depth = int(config.search.initial_architecture.removeprefix("resnet"))
    return resnet(depth, config.dataset.image_size, config.dataset.classes)


def limits_of(config: RunConfig, initial: Architecture, memory: Memory) -> Limits:
    """The limits of the search; a configured size of the memory overrides `memory`."""
    configured = config.replica.accelerator_memory_gib
    return growth_limits(
        initial,
        config.search.max_growth,
        memory.size_bytes if configured is None else round(configured * GIB),
        config.batch_size,
        ACTIVATION_BYTES[memory.precision],
    )


def checked_limits(config: RunConfig, initial: Architecture, memory: Memory) -> Limits:
    """`limits_of`. Raises EnvironmentNotReadyError if they refuse the initial architecture."""
    limits = limits_of(config, initial, memory)
    if (refusal := limits.refusal(initial)) is not None:
        source = "found" if config.replica.accelerator_memory_gib is None else "replica.accelerator_memory_gib"
        raise EnvironmentNotReadyError(
            [
                f"the initial architecture, {config.search.initial_architecture}, is too large for the memory of an "
                f"accelerator ({source}): {refusal}. Set a smaller training.batch_size, or "
                "replica.accelerator_memory_gib if there is more"
            ]
        )
    return limits


class Planner:
    """Plans the trainings of one replica. Its methods may be called from several threads.

    Planners of one process may share their knowledge; without one it reads the history list for
    itself. Raises EnvironmentNotReadyError if the initial architecture is beyond the limits.
    """

    def __init__(
        self, replica: int, config: RunConfig, paths: RunPaths, memory: Memory, knowledge: Knowledge | None = None
    ) -> None:
        self._replica = replica
        self._config = config
        self._paths = paths
        self._knowledge = knowledge or Knowledge(paths)
        self._initial = initial_architecture(config)
        self._limits = checked_limits(config, self._initial, memory)
        self._strategy = STRATEGIES.load(config.search.strategy)(self._initial, self._limits)
        self._lane = Lane.of(replica, config.run.replicas)
        self._candidates = Candidates(replica, paths, self._knowledge, self._limits, self._lane)
        self._space = read_space(paths.space if paths.space.exists() else default_space_file(config.run.dataset))
        self._proposed: tuple[int, Observations] | None = None
        """The round that was proposed ahead last, and the evidence at that time."""
        self._lock = threading.Lock()

    def plan(self, job: Job) -> Plan:
        """The training of a job. Raises TrialFailedError ("search").

        The first trial of a run trains the initial architecture, and if it fails a later one, until
        that has trained. A round's own training takes the architecture that was proposed ahead if
        it is still new, else a new proposal. A later point tunes the architecture of the round's
        own training.
        """
        with self._lock:
            self._knowledge.read()
            if job.resumes is not None and (resumed := self._resumed(job.resumes)) is not None:
                plan = resumed
            elif job.point > 0 and job.base is not None:
                plan = self._tuned(job.base)
            elif self._initial_is_due(job):
                plan = Plan(Proposal(self._initial, None), self._defaults())
            else:
                proposal = self._next(job.round)
                plan = Plan(proposal, self._best_hyperparameters(proposal.parent))
            self._knowledge.save(plan.proposal.architecture)
            return replace(plan, repeats=plan.training in self._knowledge.trainings())

    def still_new(self, plan: Plan, job: Job) -> bool:
        """True unless a replica has started the same training since it was planned.

        A plan made ahead is not for the trial that is to train the initial architecture.
        """
        with self._lock:
            self._knowledge.read()
            is_initial = plan.proposal.architecture == self._initial
            if job.point == 0 and job.resumes is None and (is_initial or self._initial_is_due(job)):
                return is_initial and self._initial_is_due(job)
            return plan.repeats or plan.training not in self._knowledge.trainings()

    def propose_ahead(self, round_number: int) -> None:
        """Store a candidate for a later round, unless nothing was recorded since the last one."""
        with self._lock:
            self._knowledge.read()
            observations = self._knowledge.observations()
            if (round_number, observations) != self._proposed:
                self._candidates.save(round_number, self._propose(round_number, observations))
                self._proposed = (round_number, observations)

    def earlier_qualities(self, job: Job) -> dict[int, float]:
        """The quality after each epoch, by epoch, of the trials that a job resumes.

        The trainer may repeat the last ones: its checkpoint may be of an earlier epoch.
        """
        if job.resumes is None:
            return {}
        self._knowledge.read()
        return self._knowledge.qualities(job.resumes)

    def weights_for(self, proposal: Proposal) -> KeptWeights | None:
        """Kept weights of the proposal's parent, if children inherit and there are any."""
        if self._config.search.initial_weights != "inherit" or not proposal.morphs:
            return None  # the initial architecture, or one whose kernels were tuned: no morphs lead to it
        return find_weights(proposal.parent, self._knowledge.ranked(), self._paths)

    def prune_weights(self) -> None:
        """Delete this replica's weights of all but the `search.kept_weights` best trials."""
        self._knowledge.read()
        prune_weights(self._knowledge.ranked(), self._config.search.kept_weights, self._replica, self._paths)

    def _initial_is_due(self, job: Job) -> bool:
        return self._knowledge.initial_is_due(self._initial.hash, job.trial)

    def _resumed(self, trial: int) -> Plan | None:
        """The plan of an interrupted trial; None if it was interrupted before it started."""
        started = self._knowledge.started(trial)
        if started is None:
            return None
        morphs = tuple(morph_from_data(data) for data in started.morphs)
        proposal = Proposal(self._knowledge.load(started.architecture), started.parent, morphs)
        return Plan(proposal, {**self._defaults(), **started.hyperparameters})

    def _next(self, round_number: int) -> Proposal:
        observations = self._knowledge.observations()
        parents = {self._initial.hash, *(observation.architecture.hash for observation in observations.completed)}
        candidate = self._candidates.load(round_number, parents)
        if candidate is not None and candidate.architecture.hash not in observations.hashes:
            return candidate
        return self._propose(round_number, observations)

    def _propose(self, round_number: int, observations: Observations) -> Proposal:
        # By round, not by trial: the id of a trial is not known when it is proposed ahead.
        seed = fold_seed(self._config.run.seed, "search", round_number, self._replica)
        return self._strategy.propose(observations, random.Random(seed), self._lane)

    def _tuned(self, base: int) -> Plan:
        started = self._knowledge.tuning_base(base)
        architecture = self._knowledge.load(started.architecture)
        trained = self._knowledge.trainings()

        def fits(suggestion: Hyperparameters) -> bool:
            tuned = apply_hyperparameters(architecture, suggestion)
            training = training_of(tuned.hash, {**self._defaults(), **suggestion})
            return self._fits_memory(tuned, suggestion) and training not in trained

        suggest = TUNERS.load(self._config.search.hpo)
        # Of the history, not of the job: replicas that ask at the same moment share one sequence of
        # suggestions, of which each lane has its own.
        group = self._replica // self._lane.count
        seed = fold_seed(self._config.run.seed, "hpo", self._knowledge.points_started(), group)
        suggestion = suggest(self._space, replace(self._knowledge.tried(self._space), fits=fits), seed, self._lane)
        tuned = apply_hyperparameters(architecture, suggestion)
        morphs = tuple(morph_from_data(data) for data in started.morphs)
        grown = Proposal(tuned, started.parent, morphs if tuned == architecture else ())
        return Plan(grown, {**self._defaults(), **suggestion})

    def _fits_memory(self, architecture: Architecture, suggestion: Hyperparameters) -> bool:
        """True if the training fits into the accelerator's memory, by an estimate."""
        memory = self._limits.memory_bytes
        batch = int(suggestion.get("batch_size", self._config.batch_size))
        return memory is None or training_memory(architecture, batch, self._limits.activation_bytes) <= memory

    def _defaults(self) -> Hyperparameters:
        training = self._config.training
        return {
            "batch_size": self._config.batch_size,
            "learning_rate": training.learning_rate,
            "momentum": training.momentum,
            "label_smoothing": training.label_smoothing,
        }

    def _best_hyperparameters(self, parent: str | None) -> Hyperparameters:
        """The parent's best hyperparameters; the defaults if it was never trained."""
        known = self._defaults()
        for trial in self._knowledge.ranked():
            if trial.started.architecture == parent:
                return {**known, **{k: v for k, v in trial.started.hyperparameters.items() if k in known}}
        return known
