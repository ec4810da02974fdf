"""One round of a replica: search, start, train, record."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatchmethod

from aiperf.architecture import Architecture
from aiperf.config import RunConfig
from aiperf.errors import TrialFailedError
from aiperf.history import HistoryReader, HistoryWriter
from aiperf.ledger import Ledger
from aiperf.messages import (
    Job,
    Message,
    Phase,
    Progress,
    TrainerDone,
    TrainerEpoch,
    TrainerFailed,
    TrainerPhase,
    TrainerProgress,
    TrainRequest,
)
from aiperf.models import ArchitectureStore
from aiperf.operations import Operations, count
from aiperf.paths import RunPaths
from aiperf.records import EpochCompleted, PhaseBegan, ProgressMade, TrialEnded, TrialStarted
from aiperf.seeds import fold_seed
from replica.proposer import Proposal, propose
from replica.rounds import epochs_of_round, patience_of_round
from replica.trainer_process import TrainerProcess
from search_space.resnet import resnet

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReplicaContext:
    """What all trials of a replica share."""

    replica: int
    config: RunConfig
    paths: RunPaths
    writer: HistoryWriter
    reader: HistoryReader
    ledger: Ledger
    store: ArchitectureStore
    cpu_threads: int
    send: Callable[[Message], None]


def initial_architecture(config: RunConfig) -> Architecture:
    """The architecture that the search starts from."""
    depth = int(config.search.initial_architecture.removeprefix("resnet"))
    return resnet(depth, config.dataset.image_size, config.dataset.classes)


class Trial:
    """Runs one job from search to the last epoch; every event is recorded before it is told."""

    def __init__(self, context: ReplicaContext, job: Job) -> None:
        self._context = context
        self._job = job
        self._config = context.config
        self._epochs = epochs_of_round(job.round, self._config.max_epochs)
        self._phase: Phase = "idle"
        self._epoch = 0
        self._accuracy: float | None = None
        self._cost = Operations(0, 0)
        self._done_operations = 0
        self._early: bool | None = None

    async def run(self) -> None:
        """Search and train. Raises TrialFailedError; on cancellation the ranks are ended first."""
        self._begin_phase("search")
        proposal = await asyncio.to_thread(self._search)
        self._cost = count(proposal.architecture).operations
        request = self._request(proposal)
        self._record_start(proposal, request)
        self._begin_phase("start")
        trainer = await TrainerProcess.start(self._config, request, self._context.paths.trial_log(self._job.trial))
        try:
            async for message in trainer.messages(self._config.replica.trial_silence):
                self._handle(message)
        finally:
            await trainer.end()
        if self._early is None:
            raise TrialFailedError("protocol", "the trainer ended without saying how")
        reason = "early_stop" if self._early else "completed"
        self._context.writer.append(TrialEnded(trial=self._job.trial, reason=reason))

    def idle(self) -> None:
        """Record that the accelerators wait from now on."""
        self._begin_phase("idle", trial=None)

    def _search(self) -> Proposal:
        context, job = self._context, self._job
        batch = context.reader.read_new()
        context.ledger.add(batch.records)
        for damage in batch.damages:
            log.error("damaged record in the history list: %s", damage)
        rng = random.Random(fold_seed(self._config.run.seed, "search", job.trial, context.replica))
        proposal = propose(job.trial, initial_architecture(self._config), context.ledger, context.store, rng)
        context.store.save(proposal.architecture)
        return proposal

    def _request(self, proposal: Proposal) -> TrainRequest:
        training = self._config.training
        return TrainRequest(
            trial=self._job.trial,
            architecture_path=str(self._context.paths.architecture(proposal.architecture.hash)),
            dataset=self._config.run.dataset,
            batch_size=self._config.batch_size,
            epochs=self._epochs,
            max_epochs=self._config.max_epochs,
            patience=patience_of_round(self._job.round),
            seed=self._job.seed,
            learning_rate=training.learning_rate,
            momentum=training.momentum,
            label_smoothing=training.label_smoothing,
            precision=training.precision,
            xla=training.xla,
            cpu_threads=self._context.cpu_threads,
            progress_interval_s=self._config.replica.progress_interval,
        )

    def _record_start(self, proposal: Proposal, request: TrainRequest) -> None:
        self._context.writer.append(
            TrialStarted(
                trial=self._job.trial,
                replica=self._context.replica,
                round=self._job.round,
                architecture=proposal.architecture.hash,
                parent=proposal.parent,
                hyperparameters={"batch_size": request.batch_size, "learning_rate": request.learning_rate},
                epochs=self._epochs,
            )
        )

    def _begin_phase(self, phase: Phase, trial: int | None = 0, at_ms: int | None = None) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        job_trial = self._job.trial if trial is not None else None
        self._context.writer.append(
            PhaseBegan(replica=self._context.replica, trial=job_trial, phase=phase), at_monotonic_ms=at_ms
        )
        self._tell(0)

    def _tell(self, open_operations: int) -> None:
        self._context.send(
            Progress(
                trial=self._job.trial,
                phase=self._phase,
                epoch=self._epoch,
                epochs=self._epochs,
                accuracy=self._accuracy,
                operations=self._done_operations + open_operations,
            )
        )

    @singledispatchmethod
    def _handle(self, message: Message) -> None:
        raise TrialFailedError("protocol", f"unexpected message {type(message).__name__}")

    @_handle.register
    def _(self, message: TrainerPhase) -> None:
        self._begin_phase(message.phase, at_ms=message.monotonic_ms)

    @_handle.register
    def _(self, message: TrainerProgress) -> None:
        self._context.writer.append(
            ProgressMade(
                trial=self._job.trial,
                epoch=message.epoch,
                images_trained=message.images_trained,
                images_evaluated=message.images_evaluated,
            ),
            at_monotonic_ms=message.monotonic_ms,
        )
        self._tell(self._cost.work(message.images_trained, message.images_evaluated))

    @_handle.register
    def _(self, message: TrainerEpoch) -> None:
        fields = message.model_dump(exclude={"type", "monotonic_ms"})
        self._context.writer.append(
            EpochCompleted(trial=self._job.trial, **fields), at_monotonic_ms=message.monotonic_ms
        )
        self._epoch = message.epoch
        self._done_operations += self._cost.work(message.images_trained, message.images_evaluated)
        accuracy = message.correct / message.images_evaluated
        self._accuracy = max(self._accuracy or 0.0, accuracy)
        self._tell(0)

    @_handle.register
    def _(self, message: TrainerDone) -> None:
        self._early = message.early

    @_handle.register
    def _(self, message: TrainerFailed) -> None:
        raise TrialFailedError(message.kind, message.reason)
