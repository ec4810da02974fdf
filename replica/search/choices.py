"""The choice of a training: a pure function of the knowledge, the job, the replica and its memory.

It writes nothing, so that a referee can make a choice again (`referee/replay.py`).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

from aiperf.cli.units import GIB
from aiperf.config.sections.base import Precision
from aiperf.config.settings import RunConfig
from aiperf.config.space import Hyperparameters, Value, read_space
from aiperf.errors import EnvironmentNotReadyError, TrialFailedError
from aiperf.network.architecture import Architecture
from aiperf.records.cursor import Cursor
from aiperf.run_directory.paths import RunPaths
from aiperf.seeds import fold_seed
from aiperf.storage.patience import is_there
from aiperf.wire.messages import Job
from replica.search.knowledge import Knowledge, TrainingKey, training_of
from replica.search.observations import Observations
from replica.search.partitions import ALL, Partition
from replica.search.strategies import STRATEGIES
from replica.search.strategies.contract import Proposal
from replica.search.tuners import TUNERS, UNTAUGHT
from replica.search.tuners.contract import Tried
from search_space.hyperparameters import apply_hyperparameters, default_space_file
from search_space.limits import ACTIVATION_BYTES, Limits, growth_limits
from search_space.morphisms import morph_from_data
from search_space.resnet import resnet


@dataclass(frozen=True, slots=True)
class Plan:
    """The training of a job: an architecture, and its hyperparameters.

    Both were chosen from the records up to `cursor`. `repeats` is True if the same had been trained
    before: the space had nothing else left.
    """

    proposal: Proposal
    hyperparameters: Hyperparameters
    repeats: bool = False
    cursor: Cursor = field(default_factory=Cursor)

    @property
    def training(self) -> TrainingKey:
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
    return _initial(depth, config.dataset.image_size, config.dataset.classes)


@cache
def _initial(depth: int, image_size: int, classes: int) -> Architecture:
    """The initial architecture, made once for all replicas of a process: it takes 100 kB."""
    return resnet(depth, image_size, classes)


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


Prepared = Callable[[int], Plan | None]
"""Function that gives the plan made ahead for a round, or None without a usable one."""


def _nothing_prepared(round_number: int) -> Plan | None:
    return None


class Choices:
    """The choices of one replica's trainings, from the present knowledge.

    Architectures are loaded from the run directory; nothing is written. Raises
    EnvironmentNotReadyError if the initial architecture is beyond the limits.
    """

    def __init__(self, replica: int, config: RunConfig, paths: RunPaths, memory: Memory, knowledge: Knowledge) -> None:
        self.initial = initial_architecture(config)
        self.limits = checked_limits(config, self.initial, memory)
        self._partition = Partition.of(replica, config.run.replicas)
        self._replica = replica
        self._config = config
        self._knowledge = knowledge
        self._strategy = STRATEGIES.load(config.search.strategy)(self.initial, self.limits)
        self.partition = self._partition if self._strategy.partitions else ALL
        """The partition of the replica's proposals."""
        self.learns = self._strategy.learns
        """False if a later proposal of a round is no better than its first one."""
        self._space = read_space(paths.space if is_there(paths.space) else default_space_file(config.run.dataset))

    def training(self, job: Job, prepared: Prepared = _nothing_prepared) -> Plan:
        """Choose the training of a job. Raises TrialFailedError ("search"), ArchitectureError.

        The first trial of a run trains the initial architecture, and if it fails a later one, until
        that has trained. A round's own training is the one that was prepared, else a new proposal,
        else, if nothing is left to grow, the best architecture with its hyperparameters again.
        A later point tunes the architecture of the round's own training.
        """
        with self._knowledge.unchanged():
            if job.resumes is not None and (resumed := self._resumed(job.resumes)) is not None:
                return resumed
            if job.point > 0 and job.base is not None:
                return self._tuned(job.base)
            if self.initial_is_due(job):
                return self._plan(Proposal(self.initial, None), self._defaults())
            return prepared(job.round) or self._new_or_best(job.round)

    def _new_or_best(self, round_number: int) -> Plan:
        """Propose a new architecture, or the best one again if no new one is within the limits."""
        try:
            return self.proposed(round_number, self._knowledge.observations())
        except TrialFailedError as error:
            if error.kind != "search":
                raise
            # Tuned kernels have no morphs that lead to them: a round's own training is repeated.
            best = next((ranked for ranked in self._knowledge.ranked() if ranked.started.point == 0), None)
            again = None if best is None else self._resumed(best.trial)
            return again or self._plan(Proposal(self.initial, None), self._defaults())

    def initial_is_due(self, job: Job) -> bool:
        """True if a job is to train the initial architecture."""
        return self._knowledge.initial_is_due(self.initial.hash, job.trial)

    def proposed(self, round_number: int, observations: Observations) -> Plan:
        """Propose a new architecture for a round, with the hyperparameters of its parent.

        Raises TrialFailedError ("search") if none can be found.
        """
        # Seeded by round, not by trial: a trial's id is not known when it is proposed ahead.
        seed = fold_seed(self._config.run.seed, "search", round_number, self._replica)
        proposal = self._strategy.propose(observations, random.Random(seed), self.partition)
        return self._plan(proposal, self.of_parent(proposal) or self._defaults())

    def of_parent(self, proposal: Proposal) -> Hyperparameters | None:
        """The hyperparameters of a proposal; None if its parent cannot have children.

        They are the best ones of a completed parent, with the default batch if the child is too
        large for the parent's, and the defaults if the initial architecture was never trained.
        """
        defaults, parent = self._defaults(), str(proposal.parent)
        ranked = self._knowledge.outcomes().of_architecture(parent)
        if not ranked:
            return defaults if parent == self.initial.hash else None
        best = ranked[0].started.hyperparameters
        # Without the kernel size: the architecture has it already.
        inherited = {**defaults, **{name: value for name, value in best.items() if name in defaults}}
        if not self._fits(proposal.architecture, inherited):
            inherited["batch_size"] = defaults["batch_size"]
        return inherited

    def _plan(self, proposal: Proposal, hyperparameters: Hyperparameters) -> Plan:
        return Plan(proposal, hyperparameters, cursor=self._knowledge.cursor())

    def _resumed(self, trial: int) -> Plan | None:
        """The plan of an interrupted trial; None if it was interrupted before it started."""
        started = self._knowledge.started(trial)
        if started is None:
            return None
        morphs = tuple(morph_from_data(data) for data in started.morphs)
        proposal = Proposal(self._knowledge.load(started.architecture), started.parent, morphs)
        return self._plan(proposal, {**self._defaults(), **started.hyperparameters})

    def _tuned(self, base: int) -> Plan:
        started = self._knowledge.tuning_base(base)
        architecture = self._knowledge.load(started.architecture)
        trained = self._knowledge.trainings()

        # The tuner asks about many suggestions, which differ in a handful of kernel sizes.
        @cache
        def of_size(kernel_size: Value | None) -> Architecture:
            return apply_hyperparameters(architecture, {} if kernel_size is None else {"kernel_size": kernel_size})

        def fits(suggestion: Hyperparameters) -> bool:
            tuned = of_size(suggestion.get("kernel_size"))
            training = training_of(tuned.hash, {**self._defaults(), **suggestion})
            return self._fits(tuned, suggestion) and training not in trained

        suggest = TUNERS.load(self._config.search.hpo)
        # The seed is of the history, not of the job: replicas that ask at the same moment draw one
        # sequence of suggestions, and take different places in it, by their partitions. Replicas
        # that share a partition differ in `group`.
        group = self._replica // self._partition.count
        seed = fold_seed(self._config.run.seed, "hpo", self._knowledge.points_started(), group)
        tried = Tried() if self._config.search.hpo in UNTAUGHT else self._knowledge.tried(self._space)
        suggestion = suggest(self._space, replace(tried, fits=fits), seed, self._partition)
        tuned = of_size(suggestion.get("kernel_size"))
        morphs = tuple(morph_from_data(data) for data in started.morphs)
        grown = Proposal(tuned, started.parent, morphs if tuned == architecture else ())
        return self._plan(grown, {**self._defaults(), **suggestion})

    def _fits(self, architecture: Architecture, hyperparameters: Hyperparameters) -> bool:
        """True if a training is within the limits of the search, at its own batch."""
        batch = int(hyperparameters.get("batch_size", self._config.batch_size))
        return replace(self.limits, batch_size=batch).refusal(architecture) is None

    def _defaults(self) -> Hyperparameters:
        training = self._config.training
        return {
            "batch_size": self._config.batch_size,
            "learning_rate": training.learning_rate,
            "momentum": training.momentum,
            "label_smoothing": training.label_smoothing,
        }
