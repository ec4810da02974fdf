"""One round of a replica: search, start, train, record."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatchmethod

from aiperf.config import RunConfig
from aiperf.errors import AiperfError, TrialFailedError
from aiperf.history import HistoryWriter
from aiperf.messages import (
    InheritedWeights,
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
from aiperf.operations import Operations, count
from aiperf.paths import RunPaths
from aiperf.records import EpochCompleted, PhaseBegan, ProgressMade, TrialEnded, TrialStarted
from replica.planner import KeptWeights, Plan, Planner
from replica.prediction import predicted_accuracy
from replica.proposer import Proposal
from replica.rounds import plan_round
from replica.trainer_process import TrainerProcess
from search_space.morph_json import morph_data

log = logging.getLogger(__name__)

PREPARE_INTERVAL_S = 10.0
"""How often the next candidate is looked at again while a trial trains."""


@dataclass(frozen=True)
class ReplicaContext:
    """What all trials of a replica share."""

    replica: int
    config: RunConfig
    paths: RunPaths
    writer: HistoryWriter
    planner: Planner
    cpu_threads: int
    send: Callable[[Message], None]


class Trial:
    """Runs one job from search to the last epoch; every event is recorded before it is told."""

    def __init__(self, context: ReplicaContext, job: Job) -> None:
        self._context = context
        self._job = job
        self._config = context.config
        self._plan = plan_round(job.round, self._config.max_epochs)
        self._phase: Phase = "idle"
        self._epoch = 0
        self._accuracies: list[float] = []
        self._cost = Operations(0, 0)
        self._done_operations = 0
        self._early: bool | None = None
        self._ended = False

    async def run(self) -> None:
        """Search and train. Raises TrialFailedError; on cancellation the ranks are ended first."""
        self._begin_phase("search")
        planner = self._context.planner
        plan = await asyncio.to_thread(planner.plan, self._job)
        weights = await asyncio.to_thread(planner.weights_for, plan.proposal)
        self._cost = count(plan.proposal.architecture).operations
        request = self._request(plan, weights)
        self._record_start(plan, weights)
        self._begin_phase("start")
        trainer = await TrainerProcess.start(self._config, request, self._context.paths.trial_log(self._job.trial))
        preparing = asyncio.create_task(self._prepare_next())
        try:
            async for message in trainer.messages(self._config.replica.trial_silence):
                self._handle(message)
        finally:
            preparing.cancel()
            await trainer.end()
        if self._early is None:
            raise TrialFailedError("protocol", "the trainer ended without saying how")
        reason = "early_stop" if self._early else "completed"
        predicted = predicted_accuracy(self._accuracies, self._config.max_epochs) if self._plan.predicts else None
        self._context.writer.append(TrialEnded(trial=self._job.trial, reason=reason, predicted_accuracy=predicted))
        self._ended = True
        await asyncio.to_thread(planner.prune_weights)

    async def _prepare_next(self) -> None:
        """Search for the next round on the CPUs while the accelerators train this one."""
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                try:
                    await asyncio.to_thread(self._context.planner.prepare, self._job.round + 1)
                except (AiperfError, OSError) as error:
                    log.warning("no candidate for round %d yet: %s", self._job.round + 1, error)
                await asyncio.sleep(PREPARE_INTERVAL_S)

    def stopped(self) -> None:
        """Record that the run ended this trial, unless it had ended by itself."""
        if not self._ended:
            self._context.writer.append(TrialEnded(trial=self._job.trial, reason="stopped"))

    def idle(self) -> None:
        """Record that the accelerators wait from now on."""
        self._begin_phase("idle", trial=None)

    def _request(self, plan: Plan, weights: KeptWeights | None) -> TrainRequest:
        training = self._config.training
        point, architecture = plan.point, plan.proposal.architecture
        return TrainRequest(
            trial=self._job.trial,
            architecture_path=str(self._context.paths.architecture(architecture.hash)),
            dataset=self._config.run.dataset,
            batch_size=int(point["batch_size"]),
            epochs=self._plan.epochs,
            max_epochs=self._config.max_epochs,
            patience=self._plan.patience,
            seed=self._job.seed,
            learning_rate=float(point["learning_rate"]),
            momentum=float(point["momentum"]),
            label_smoothing=float(point["label_smoothing"]),
            precision=training.precision,
            xla=training.xla,
            cpu_threads=self._context.cpu_threads,
            progress_interval_s=self._config.replica.progress_interval,
            inherited=self._inherited(plan.proposal, weights) if weights else None,
            save_weights_path=str(self._context.paths.weights(architecture.hash, self._job.trial))
            if self._config.search.initial_weights == "inherit"
            else None,
        )

    def _inherited(self, proposal: Proposal, weights: KeptWeights) -> InheritedWeights:
        paths = self._context.paths
        return InheritedWeights(
            architecture_path=str(paths.architecture(weights.architecture)),
            weights_path=str(paths.weights(weights.architecture, weights.trial)),
            morphs=tuple(morph_data(morph) for morph in proposal.morphs),
            noise=self._config.search.inherit_noise,
        )

    def _record_start(self, plan: Plan, weights: KeptWeights | None) -> None:
        proposal = plan.proposal
        self._context.writer.append(
            TrialStarted(
                trial=self._job.trial,
                replica=self._context.replica,
                round=self._job.round,
                architecture=proposal.architecture.hash,
                parent=proposal.parent,
                morphs=tuple(morph_data(morph) for morph in proposal.morphs),
                point=self._job.point,
                base=self._job.base,
                weights_from=weights.trial if weights else None,
                hyperparameters=plan.point,
                epochs=self._plan.epochs,
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
                epochs=self._plan.epochs,
                accuracy=max(self._accuracies, default=None),
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
        self._accuracies.append(message.correct / message.images_evaluated)
        self._tell(0)

    @_handle.register
    def _(self, message: TrainerDone) -> None:
        self._early = message.early

    @_handle.register
    def _(self, message: TrainerFailed) -> None:
        raise TrialFailedError(message.kind, message.reason)
