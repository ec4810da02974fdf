"""One job of a replica, from the plan to the last epoch; every event is recorded before it is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import asdict
from functools import singledispatchmethod
from typing import Literal

from aiperf.errors import AiperfError, TrialFailedError
from aiperf.history.records import EpochCompleted, PhaseBegan, ProgressMade, TrialEnded, TrialStarted
from aiperf.messages import (
    Begin,
    InheritedWeights,
    Job,
    Message,
    Phase,
    Progress,
    Started,
    TrainerDone,
    TrainerEpoch,
    TrainerPhase,
    TrainerProgress,
)
from aiperf.network.operations import Operations, count
from aiperf.rules.rounds import plan_round
from aiperf.rules.schedule import Step, next_step
from replica.search.planner import KeptWeights, Plan
from replica.search.prediction import predicted_accuracy
from replica.search.proposer import Proposal
from replica.trial.context import ReplicaContext
from replica.trial.forecast import Forecast
from replica.trial.standby import Prepared, Standby
from search_space.morph_json import morph_data

log = logging.getLogger(__name__)

PREPARE_INTERVAL_S = 10.0
"""How often the next candidate is looked at again while a trial trains."""

FORECAST_INTERVAL_S = 1.0
"""How often the end of the trial is looked for."""


class Trial:
    """Runs one job."""

    def __init__(self, context: ReplicaContext, job: Job, standby: Standby) -> None:
        self._context = context
        self._job = job
        self._standby = standby
        self._config = context.config
        self._plan = plan_round(job.round, self._config.max_epochs)
        self._forecast = Forecast(self._plan.epochs, self._plan.patience)
        self._phase: Phase = "idle"
        self._epoch = 0
        self._accuracies: list[float] = []
        self._cost = Operations(0, 0)
        self._done_operations = 0
        self._early: bool | None = None
        self.ended = False
        """Whether the end of the training is recorded."""

    async def run(self) -> None:
        """Plan, start and train. Raises TrialFailedError; on cancellation the ranks are ended first."""
        self._begin_phase("search")
        prepared = await self._standby.take(self._job)
        try:
            await self._train(prepared)
        finally:
            await prepared.drop()
        if self._early is None:
            raise TrialFailedError("protocol", "the trainer ended without saying how")
        self._record_end("early_stop" if self._early else "completed")
        await asyncio.to_thread(self._tidy, prepared.plan)

    async def _train(self, prepared: Prepared) -> None:
        plan, trainer = prepared.plan, prepared.trainer
        weights = await asyncio.to_thread(self._context.planner.weights_for, plan.proposal)
        self._cost = count(plan.proposal.architecture).operations
        trainer.log = trainer.log.rename(self._context.paths.trial_log(self._job.trial))
        self._record_start(plan, weights)
        # Only now: what is prepared must know of this trial.
        preparing = asyncio.create_task(self._prepare_next())
        try:
            await self._follow(prepared, self._begin(plan, weights))
        finally:
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)

    async def _follow(self, prepared: Prepared, begin: Begin) -> None:
        trainer = prepared.trainer
        if not prepared.readiness.done():
            self._begin_phase(trainer.phase)
            trainer.listener = self._handle
            await prepared.readiness
        prepared.readiness.result()
        self._standby.learn(prepared)
        self._begin_phase("start")
        await trainer.begin(begin)
        async for message in trainer.messages(self._config.replica.trial_silence):
            self._handle(message)

    async def _prepare_next(self) -> None:
        """Search on the CPUs while the accelerators train, then start the ranks of the next trial in time."""
        job = self._next_job()
        with contextlib.suppress(asyncio.CancelledError):
            looked_s = -PREPARE_INTERVAL_S
            while not self._ends_soon():
                if job.point == 0 and time.monotonic() - looked_s >= PREPARE_INTERVAL_S:
                    looked_s = time.monotonic()
                    await self._look_ahead(job.round)
                await asyncio.sleep(FORECAST_INTERVAL_S)
            await self._standby.prepare(job)

    async def _look_ahead(self, round_number: int) -> None:
        try:
            await asyncio.to_thread(self._context.planner.prepare, round_number)
        except (AiperfError, OSError) as error:
            log.warning("no candidate for round %d yet: %s", round_number, error)

    def _ends_soon(self) -> bool:
        if not self._config.replica.warm_up:
            return False
        left_s = self._forecast.seconds_left(time.monotonic())
        return left_s is not None and left_s <= self._standby.lead_s

    def _next_job(self) -> Job:
        """What the primary will ask for if this trial does not fail. Only the trial's id is not known yet."""
        step = Step(self._job.round, self._job.point, self._job.base)
        coming = next_step(step, self._job.trial, True, self._config.search)
        seed = coming.seed(self._config, self._context.replica)
        return Job(trial=0, round=coming.round, seed=seed, point=coming.point, base=coming.base)

    def stopped(self) -> None:
        """Record that the run ended this trial, unless it had ended by itself."""
        if not self.ended:
            self._context.writer.append(TrialEnded(trial=self._job.trial, reason="stopped"))

    def idle(self) -> None:
        """Record that the accelerators wait from now on."""
        self._begin_phase("idle", trial=None)

    def _record_end(self, reason: Literal["completed", "early_stop"]) -> None:
        predicted = predicted_accuracy(self._accuracies, self._config.max_epochs) if self._plan.predicts else None
        body = TrialEnded(trial=self._job.trial, reason=reason, predicted_accuracy=predicted)
        self._context.writer.append(body)
        self.ended = True

    def _tidy(self, plan: Plan) -> None:
        self._context.paths.checkpoint(plan.proposal.architecture.hash, self._job.trial).unlink(missing_ok=True)
        self._context.planner.prune_weights()

    def _begin(self, plan: Plan, weights: KeptWeights | None) -> Begin:
        paths, name = self._context.paths, plan.proposal.architecture.hash
        checkpoint = paths.checkpoint(name, self._job.trial)
        if self._job.resumes is not None:
            with contextlib.suppress(FileNotFoundError):
                paths.checkpoint(name, self._job.resumes).rename(checkpoint)
        inherits = self._config.search.initial_weights == "inherit"
        return Begin(
            trial=self._job.trial,
            inherited=self._inherited(plan.proposal, weights) if weights else None,
            save_weights_path=str(paths.weights(name, self._job.trial)) if inherits else None,
            checkpoint_path=str(checkpoint),
            checkpoint_interval_s=self._config.training.checkpoint_interval,
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
                precision=self._context.precision,
                resumes=self._job.resumes,
            )
        )
        self._context.send(
            Started(
                trial=self._job.trial,
                architecture=proposal.architecture.hash,
                parent=proposal.parent,
                hyperparameters=plan.point,
                epochs=self._plan.epochs,
                operations_per_image=self._cost.total,
                depth=proposal.architecture.depth,
                weights=proposal.architecture.parameter_count,
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
        if message.phase == "train":
            self._forecast.began(time.monotonic())
        self._begin_phase(message.phase, at_ms=message.monotonic_ms)

    @_handle.register
    def _(self, message: TrainerProgress) -> None:
        facts = message.facts
        self._context.writer.append(
            ProgressMade(trial=self._job.trial, **asdict(facts)), at_monotonic_ms=message.monotonic_ms
        )
        fraction = min(1.0, facts.images_trained / self._config.dataset.train_images)
        self._forecast.reached(time.monotonic(), self._accuracies, fraction)
        self._tell(self._cost.work(facts.images_trained, facts.images_evaluated))

    @_handle.register
    def _(self, message: TrainerEpoch) -> None:
        facts = message.facts
        self._context.writer.append(
            EpochCompleted(trial=self._job.trial, **asdict(facts)), at_monotonic_ms=message.monotonic_ms
        )
        self._epoch = facts.epoch
        self._done_operations += self._cost.work(facts.images_trained, facts.images_evaluated)
        self._accuracies.append(facts.quality or 0.0)
        self._forecast.reached(time.monotonic(), self._accuracies, 0.0)
        self._tell(0)

    @_handle.register
    def _(self, message: TrainerDone) -> None:
        self._early = message.early
        self._begin_phase("idle", at_ms=message.monotonic_ms)
