"""The next trial's ranks, warmed up next to the current trial: accelerators do not wait.

The next job is known (`aiperf.rules.schedule`) unless the current trial fails; in that case the
warm ranks are dropped.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator

from msgspec.structs import replace

from aiperf.errors import AiperfError, TrialFailedError
from aiperf.facts import BuiltFacts
from aiperf.wire.messages import CROWDED, Job, Phase, TrainerPhase
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.requests import TrialTraining, train_request
from replica.agent.trial.trainer import Trainer
from replica.search.planner import Plan

log = logging.getLogger(__name__)

FIRST_LEAD_S = 60.0
"""Expected seconds of a warm-up before one was measured."""

LEAD_FACTOR = 2.5
"""Reserve, as a multiple of the last warm-up: next to a training it takes longer, and the training
may end before the forecast."""


class WarmRanks:
    """A plan, and the ranks that warm up for it or are warm."""

    def __init__(self, job: Job, plan: Plan, trainer: Trainer, context: ReplicaContext) -> None:
        self.job = job
        self.plan = plan
        self.trainer = trainer
        self.phase: Phase = "start"
        """The current phase of the warm-up."""
        self.took_s: float | None = None
        """Seconds that the warm-up took; None until it is over."""
        self._clock = context.clock
        self._phases: asyncio.Queue[TrainerPhase | None] = asyncio.Queue()
        self._warming = asyncio.create_task(self._warm_up(context.config.replica.trial_silence))

    async def _warm_up(self, silence_s: float) -> None:
        began_s = self._clock.monotonic_s()
        try:
            async for message in self.trainer.warm_up(silence_s):
                self.phase = message.phase
                self._phases.put_nowait(message)
            self.took_s = self._clock.monotonic_s() - began_s
        finally:
            # The end of the queue, also after a failure: a reader must not wait for ever.
            self._phases.put_nowait(None)

    @property
    def ready(self) -> bool:
        """True if the warm-up is over, well or not."""
        return self._warming.done()

    @property
    def built(self) -> BuiltFacts | None:
        """The model that the warm ranks report to have built; None before."""
        return self.trainer.built

    @property
    def failed(self) -> bool:
        """True if the warm-up has failed."""
        return self._warming.done() and self._warming.exception() is not None

    async def until_ready(self) -> None:
        """Wait for the end of the warm-up. Raises TrialFailedError."""
        # A caller that is cancelled must not cancel the warm-up, for which the next trial waits.
        await asyncio.shield(self._warming)

    async def coming_phases(self) -> AsyncIterator[TrainerPhase]:
        """Yield the phases of the warm-up from now on. Raises TrialFailedError.

        Earlier ones fell into the training before, whose phases the record has at that time.
        """
        if not self._warming.done():
            while not self._phases.empty():
                self._phases.get_nowait()
            while (message := await self._phases.get()) is not None:
                yield message
        await self._warming

    async def drop(self) -> None:
        """End the ranks."""
        self._warming.cancel()
        await asyncio.gather(self._warming, return_exceptions=True)
        await self.trainer.end()


class Standby:
    """The warm ranks of one replica: at most one group of them."""

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context
        self._coming: asyncio.Task[WarmRanks] | None = None
        """A task of its own: if its caller is cancelled, the ranks must not be forgotten."""
        self._lead_s = FIRST_LEAD_S
        self._numbers = itertools.count(1)

    @property
    def lead_s(self) -> float:
        """Seconds before a trial's end at which the next warm-up is to begin."""
        return self._lead_s

    async def warm_up(self, job: Job) -> None:
        """Have the ranks of a job ready next to the current trial.

        A failure costs nothing but a line of the log.
        """
        await self.drop()
        try:
            ranks = await self._start(job)
            await ranks.until_ready()
        except (AiperfError, OSError) as error:
            log.warning("no ranks are warm for round %d: %s", job.round, error)

    async def take(self, job: Job) -> WarmRanks:
        """Give the ranks for a job: the warm ones if they fit, else new ones.

        Raises TrialFailedError.
        """
        if self._coming is not None:
            with contextlib.suppress(AiperfError, OSError):
                ranks = await asyncio.shield(self._coming)
                if await asyncio.to_thread(self._fit, ranks, job):
                    self._coming = None
                    return ranks
            log.info("the warm ranks do not fit trial %d and are dropped", job.trial)
            await self.drop()
        ranks = await self._start(job)
        # Not before: until the caller has them, `drop` must find them if it is cancelled.
        self._coming = None
        return ranks

    async def _start(self, job: Job) -> WarmRanks:
        self._coming = asyncio.create_task(self._plan_and_start(job))
        return await asyncio.shield(self._coming)

    async def _plan_and_start(self, job: Job) -> WarmRanks:
        plan = await asyncio.to_thread(self._context.planner.plan, job)
        log_file = self._context.paths.preparation_log(self._context.replica, next(self._numbers))
        context, architecture = self._context, plan.proposal.architecture.hash
        training = TrialTraining(architecture, plan.hyperparameters, job.round, job.seed, context.precision)
        trainer = await context.start_trainer(train_request(context.config, context.paths, training), log_file)
        return WarmRanks(job, plan, trainer, context)

    def _fit(self, ranks: WarmRanks, job: Job) -> bool:
        # The primary fills in these three only when it sends the job; all else must be as foreseen.
        expected = replace(ranks.job, trial=job.trial, claim=job.claim, digest=job.digest)
        return not ranks.failed and expected == job and self._context.planner.still_new(ranks.plan, job)

    async def blamed_for(self, error: TrialFailedError) -> TrialFailedError | None:
        """Give the failure to report if warm ranks may have taken the memory that a training lacks.

        They are ended. The tuner must not learn from it that the batch does not fit: the primary
        gives the training out once more, alone.
        """
        if error.kind != "out_of_memory" or self._coming is None:
            return None
        await self.drop()
        reason = f"out of memory next to the ranks of the next trial, without which it is tried again: {error.reason}"
        return TrialFailedError(CROWDED, reason)

    def learn(self, ranks: WarmRanks) -> None:
        """Expect the next warm-up to take as long as this one."""
        if ranks.took_s is not None:
            self._lead_s = LEAD_FACTOR * ranks.took_s

    async def drop(self) -> None:
        """End the warm ranks, if there are any."""
        # Forgotten first: nothing may take ranks that are being ended.
        coming, self._coming = self._coming, None
        if coming is not None:
            with contextlib.suppress(AiperfError, OSError):
                await (await coming).drop()
