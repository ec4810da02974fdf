"""The next trial's ranks: started, built and warm beside the current trial, so that accelerators do not wait.

What will be asked next is known (`aiperf.rules.schedule`) unless the current trial fails; then the preparation is
dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from dataclasses import dataclass

from aiperf.errors import AiperfError
from aiperf.messages import Job, TrainRequest
from aiperf.rules.rounds import plan_round
from replica.search.planner import Plan
from replica.trial.context import ReplicaContext
from replica.trial.trainer_process import TrainerProcess

log = logging.getLogger(__name__)

FIRST_LEAD_S = 60.0
"""How long a preparation is expected to take before one was measured."""

LEAD_FACTOR = 2.5
"""A preparation beside a training is slower than one alone, and a training may end earlier than it seems."""


@dataclass
class Prepared:
    """A plan, and the ranks that are getting ready for it."""

    job: Job
    plan: Plan
    trainer: TrainerProcess
    readiness: asyncio.Task[None]

    async def drop(self) -> None:
        """End the ranks."""
        self.readiness.cancel()
        await asyncio.gather(self.readiness, return_exceptions=True)
        await self.trainer.end()


class Standby:
    """At most one preparation of one replica."""

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context
        self._coming: asyncio.Task[Prepared] | None = None
        """A task of its own: whoever waits for it may be cancelled, what it has started must not be forgotten."""
        self._lead_s = FIRST_LEAD_S
        self._numbers = itertools.count(1)

    @property
    def lead_s(self) -> float:
        """How long before the end of a trial to begin."""
        return self._lead_s

    async def prepare(self, job: Job) -> None:
        """Have a job ready beside the current trial. What goes wrong here costs nothing but a line of the log."""
        await self.drop()
        try:
            prepared = await self._start(job)
            await asyncio.shield(prepared.readiness)
        except (AiperfError, OSError) as error:
            log.warning("round %d could not be prepared: %s", job.round, error)

    async def take(self, job: Job) -> Prepared:
        """The ranks for a job: the prepared ones where they fit, else fresh ones. Raises TrialFailedError."""
        if self._coming is not None:
            with contextlib.suppress(AiperfError, OSError):
                prepared = await asyncio.shield(self._coming)
                if await asyncio.to_thread(self._fits, prepared, job):
                    self._coming = None
                    return prepared
            log.info("the preparation for trial %d is dropped", job.trial)
            await self.drop()
        prepared = await self._start(job)
        self._coming = None
        return prepared

    async def _start(self, job: Job) -> Prepared:
        self._coming = asyncio.create_task(self._plan_and_start(job))
        return await asyncio.shield(self._coming)

    async def _plan_and_start(self, job: Job) -> Prepared:
        plan = await asyncio.to_thread(self._context.planner.plan, job)
        log_file = self._context.paths.preparation_log(self._context.replica, next(self._numbers))
        trainer = await TrainerProcess.start(self._context.ranks, self._request(job, plan), log_file)
        silence_s = self._context.config.replica.trial_silence
        return Prepared(job, plan, trainer, asyncio.create_task(trainer.until_ready(silence_s)))

    def _fits(self, prepared: Prepared, job: Job) -> bool:
        failed = prepared.readiness.done() and prepared.readiness.exception() is not None
        wanted = prepared.job.model_copy(update={"trial": job.trial})
        return not failed and wanted == job and self._context.planner.still_new(prepared.plan)

    def learn(self, prepared: Prepared) -> None:
        """Take how long a preparation took for the next one."""
        if prepared.trainer.prepared_s is not None:
            self._lead_s = LEAD_FACTOR * prepared.trainer.prepared_s

    async def drop(self) -> None:
        """End what is prepared."""
        coming, self._coming = self._coming, None
        if coming is not None:
            with contextlib.suppress(AiperfError, OSError):
                await (await coming).drop()

    def _request(self, job: Job, plan: Plan) -> TrainRequest:
        config, point = self._context.config, plan.point
        rounds = plan_round(job.round, config.max_epochs)
        return TrainRequest(
            architecture_path=str(self._context.paths.architecture(plan.proposal.architecture.hash)),
            dataset=config.run.dataset,
            data_dir=config.run.data_dir,
            synthetic_input=config.training.input == "synthetic",
            parallel_decode=config.training.parallel_decode,
            shuffle_buffer=config.training.shuffle_buffer,
            batch_size=int(point["batch_size"]),
            epochs=rounds.epochs,
            max_epochs=config.max_epochs,
            patience=rounds.patience,
            seed=job.seed,
            learning_rate=float(point["learning_rate"]),
            momentum=float(point["momentum"]),
            label_smoothing=float(point["label_smoothing"]),
            precision=self._context.precision,
            xla=config.training.xla,
            progress_interval_s=config.replica.progress_interval,
        )
