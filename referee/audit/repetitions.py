"""The repetitions of an audit: one for each drawn trial, whatever the number of its draws."""

import asyncio
import importlib.util
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from numpy.typing import NDArray

from aiperf.config.frameworks import TRAITS
from aiperf.config.settings import RunConfig
from aiperf.errors import AiperfError, RunDirectoryError, TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.host import this_host
from aiperf.machine.accelerators import find_accelerators, visible_devices
from aiperf.processes import cpu_seconds_of
from aiperf.records.entries import TrialLedger
from aiperf.run_directory.step_evidence import read_rows
from aiperf.wire.messages import Begin, FromTrainer, TrainerEpoch, TrainerPhase, TrainerProgress, TrainRequest
from referee.audit.comparison import breaking_off, epoch_breaking_off
from referee.audit.kept_weights import difference_of_weights
from referee.audit.pace import Mark, repeated_pace
from referee.audit.recorded import KeptEpoch, Recorded
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import TrainerProcess

# One repetition: the program that trained in the run trains again, into a folder of its own, with
# as many threads as then, so that sums are added in the same order.


@dataclass(frozen=True, slots=True)
class Repetition:
    """The outcome of a repetition."""

    rows: NDArray[Any] | None
    """Rows of the first epoch (`aiperf.run_directory.step_evidence`), if steps were repeated."""
    epochs: tuple[EpochFacts, ...]
    """Epochs that were trained, and epoch 0 for weights that were evaluated."""
    pace: float | None = None
    """Images per second of its training; None if it was too short for one."""

    @property
    def evaluated(self) -> EpochFacts | None:
        """The evaluation of kept weights."""
        return next((facts for facts in self.epochs if facts.epoch == 0), None)

    @property
    def trained(self) -> tuple[EpochFacts, ...]:
        """The epochs that were trained in full, from the first on."""
        return tuple(facts for facts in self.epochs if facts.epoch > 0)


PACE_INTERVAL_S = 1.0
"""Seconds between the reports of a repetition that its pace is made from."""

MOST_AT_ONCE = 4
"""Trainings at a time on CPUs: each one needs memory."""


def replicas_per_node(config: RunConfig) -> int:
    """Replicas that share a node's CPUs in a run of this configuration."""
    return config.run.replicas if config.run.launcher == "local" else config.replica.per_node


def trainings_at_once(config: RunConfig) -> int:
    """Trainings that this machine can do next to each other with as many CPUs as in the run."""
    if find_accelerators():
        return 1
    return max(1, min(MOST_AT_ONCE, replicas_per_node(config), this_host().usable_cpus()))


def ranks_here(config: RunConfig, ranks: int) -> RankSetup:
    """The ranks of a training on this machine, with as many CPU threads as in the run on a machine
    like this one: sums are then added in the same order.

    Raises TrialFailedError ("machine") if the machine cannot have this many.
    """
    own = find_accelerators()
    if own and len(own) < ranks:
        raise TrialFailedError("machine", f"the run had {ranks} ranks, this machine has {len(own)} accelerators")
    if ranks > 1 and TRAITS[config.training.framework].takes_horovod and importlib.util.find_spec("horovod") is None:
        raise TrialFailedError("machine", f"the run had {ranks} ranks, and Horovod is not installed here")
    cpus = config.replica.cpu_threads or max(1, this_host().usable_cpus() // replicas_per_node(config) // ranks)
    return RankSetup(config, ranks, cpus, environment=visible_devices(own[:ranks]))


async def repeat(setup: RankSetup, request: TrainRequest, begin: Begin, folder: Path) -> Repetition:
    """Make the ranks do the work of `begin`; evidence and log go into the folder, which is empty.

    Raises TrialFailedError.
    """
    evidence, silence_s = folder / f"trial-{begin.trial:06d}.rows", setup.config.replica.trial_silence
    request = replace(request, progress_interval_s=PACE_INTERVAL_S)
    trainer = await TrainerProcess.start(setup, request, folder / f"trial-{begin.trial:06d}.log")
    epochs, marks = [], list[Mark]()
    try:
        await trainer.until_ready(silence_s)
        await trainer.begin(replace(begin, evidence_path=str(evidence)))
        async for message in trainer.messages(silence_s):
            if isinstance(message, TrainerEpoch):
                epochs.append(message.facts)
            marks += _mark(message, cpu_seconds_of(trainer.pid))
    finally:
        await trainer.end()
    return Repetition(_first_rows(evidence), tuple(epochs), repeated_pace(marks, _cpus(setup)))


def _mark(message: FromTrainer, cpu_s: float | None) -> Iterator[Mark]:
    """The moment of a training that a message is about."""
    if isinstance(message, TrainerPhase) and message.phase == "train":
        yield Mark(message.monotonic_ms, 0, cpu_s)
    elif isinstance(message, TrainerProgress) and message.facts.epoch > 0 and not message.facts.images_evaluated:
        yield Mark(message.monotonic_ms, message.facts.images_trained, cpu_s)


def _cpus(setup: RankSetup) -> int | None:
    """The CPUs for one training in a run on a machine like this; None: it has accelerators."""
    if find_accelerators():
        return None
    own = this_host().usable_cpus() // replicas_per_node(setup.config)
    return max(1, own, setup.cpu_threads * setup.ranks)


def _first_rows(evidence: Path) -> NDArray[Any] | None:
    try:
        return read_rows(evidence).get(1) if evidence.exists() else None
    except RunDirectoryError as error:
        raise TrialFailedError("evidence", str(error)) from None


# All repetitions of an audit.


@dataclass(frozen=True, slots=True)
class Repeated:
    """Repetition of one trial: the outcome, or the reason why there is none."""

    begun: TrialLedger | None = None
    """The trial whose first steps were repeated: the trial itself, or the one that it resumes."""
    recorded: NDArray[Any] | None = None
    """The rows of these steps from the run."""
    outcome: Repetition | None = None
    reason: str = ""
    again: Repetition | None = None
    """A second repetition, if the run broke off from the first one after equal bits."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Extent of a repetition: this many steps, or whole epochs."""

    steps: int
    epochs: int = 0
    """Epochs to train in full; 0: none."""
    data_dir: Path | None = None
    """The data set on this machine, if it is not where the run had it."""
    known_seed: int = 0
    """Seed of the training images that kept weights classify (`Begin.evaluate_known`)."""


class Repetitions:
    """Repeats trials, as many at a time as the run had on a machine."""

    def __init__(self, recorded: Recorded, folder: Path, extent: Extent) -> None:
        self._recorded = recorded
        self._folder = folder
        self._extent = extent
        self._number = 0
        self._gate = asyncio.Semaphore(trainings_at_once(recorded.config))
        self._evaluated: dict[int, asyncio.Task[EpochFacts]] = {}
        self._repeated: dict[int, Repeated] = {}

    async def run(self, trials: Collection[int]) -> None:
        """Repeat the first steps of trials, and evaluate their kept weights."""
        for trial, repeated in zip(trials, await asyncio.gather(*map(self._first_steps, trials)), strict=True):
            self._repeated[trial] = repeated
        kept = [weights for weights in map(self._recorded.weights_of, trials) if weights is not None]
        # Errors are raised again by `evaluation_of`, as findings of the draws that they concern.
        await asyncio.gather(*map(self._evaluation, kept), return_exceptions=True)

    def steps_of(self, trial: int) -> Repeated:
        """The first steps of a trial that was repeated."""
        return self._repeated[trial]

    def evaluation_of(self, kept: KeptEpoch) -> EpochFacts:
        """The evaluation of the kept weights of such a trial. Raises AiperfError."""
        return self._evaluated[kept.trial].result()

    async def _first_steps(self, trial: int) -> Repeated:
        try:
            begun = self._recorded.origin(trial)
            rows, _ = self._recorded.rows(begun.trial, 1)
            rows = rows if self._extent.epochs else rows[: self._extent.steps]
            inherited = self._recorded.inherited(begun)
            if inherited is not None:
                await self._check_parent(inherited[1])
            begin = Begin(
                trial=trial,
                inherited=inherited[0] if inherited is not None else None,
                only_steps=None if self._extent.epochs else len(rows),
            )
            outcome = await self._train(begun, begin)
            breaks = self._recorded.on_cpus(begun) and self._breaks_off(begun, rows, outcome)
            return Repeated(begun, rows, outcome, again=await self._repeat(begun, begin) if breaks else None)
        except AiperfError as error:
            return Repeated(reason=str(error))

    def _breaks_off(self, begun: TrialLedger, rows: NDArray[Any], outcome: Repetition) -> bool:
        """True if the run goes on otherwise than a repetition that begins with the same bits."""
        steps = breaking_off(rows, outcome.rows) if outcome.rows is not None else None
        epochs = epoch_breaking_off(self._recorded.first_epochs(begun, self._extent.epochs), outcome.trained)
        return steps is not None or epochs is not None

    async def _train(self, begun: TrialLedger, begin: Begin) -> Repetition:
        """Train, and evaluate the kept weights by the same ranks if nothing else has."""
        kept = self._recorded.weights_of(begin.trial)
        if kept is None or begin.only_steps is None or begin.trial in self._evaluated:
            return await self._repeat(begun, begin)
        # One start of the ranks for both: to build and compile takes longer than the steps.
        both = asyncio.create_task(self._repeat(begun, self._evaluating(begin, kept)))
        self._evaluated[begin.trial] = asyncio.create_task(_evaluation_in(both))
        return await both

    async def _evaluation(self, kept: KeptEpoch) -> EpochFacts:
        """Evaluate the kept weights of a trial, once. Raises AiperfError."""
        if kept.trial not in self._evaluated:
            begin = self._evaluating(Begin(trial=kept.trial), kept)
            alone = asyncio.create_task(self._repeat(self._recorded.ledger(kept.trial), begin))
            self._evaluated[kept.trial] = asyncio.create_task(_evaluation_in(alone))
        return await self._evaluated[kept.trial]

    def _evaluating(self, begin: Begin, kept: KeptEpoch) -> Begin:
        return replace(begin, evaluate_path=str(kept.path), evaluate_known=self._extent.known_seed)

    async def _check_parent(self, trial: int) -> None:
        """The weights that a child begins with must be those of an epoch of their trial."""
        kept = self._recorded.weights_of(trial)
        assert kept is not None
        difference = difference_of_weights(self._recorded, kept, await self._evaluation(kept))
        if difference:
            raise TrialFailedError("weights", f"the weights of trial {trial} that it began with: {difference}")

    async def _repeat(self, entry: TrialLedger, begin: Begin) -> Repetition:
        setup = ranks_here(self._recorded.config, self._recorded.ranks(entry))
        epochs = len(self._recorded.first_epochs(entry, self._extent.epochs))
        request = replace(self._recorded.request(entry, self._extent.data_dir), epochs=max(1, epochs))
        # Taken last: a child that waits for its parent's evaluation must not hold a place that the
        # parent needs.
        async with self._gate:
            self._number += 1
            folder = self._folder / str(self._number)
            folder.mkdir()
            return await repeat(setup, request, begin, folder)


async def _evaluation_in(repetition: asyncio.Task[Repetition]) -> EpochFacts:
    facts = (await repetition).evaluated
    if facts is None:
        raise TrialFailedError("protocol", "the trainer did not report the evaluation")
    return facts
