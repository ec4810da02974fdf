"""A trial of AutoML, from the plan of its job to its last epoch.

While it trains, the next candidate is proposed and the next ranks are warmed up, in time for the
forecast end of the training.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from aiperf.clock import Clock
from aiperf.errors import AiperfError, TrialFailedError
from aiperf.rules.rounds import epochs_left, plan_round
from aiperf.rules.schedule import Assignment, next_assignment
from aiperf.wire.messages import (
    Begin,
    InheritedWeights,
    Job,
    Message,
    TrainerDone,
    TrainerEpoch,
    TrainerExchange,
    TrainerPhase,
    TrainerProgress,
)
from replica.agent.trial.checkpoints import forget, take_over
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.standby import Standby, WarmRanks
from replica.agent.trial.trial_log import TrialLog
from replica.agent.trial.unhandled import unhandled_errors_fail_it
from replica.search.kept_weights import KeptWeights
from replica.search.planner import Plan, Planner
from replica.search.strategies.contract import Proposal
from search_space.morphisms import morph_data

# The forecast of the current training's earliest end, from its reports.


class Forecast:
    """The extrapolated pace of a training. Times are seconds of any one clock."""

    def __init__(self, epochs: int, patience: int) -> None:
        self._epochs = epochs
        self._patience = patience
        self._began_s: float | None = None
        self._done = 0.0
        self._earlier = 0
        self._reached_s = 0.0
        self._end = float(epochs)
        self._accuracies: Sequence[float] | None = None
        """The accuracies that the end was last forecast from."""

    def began(self, now_s: float) -> None:
        """Note that the first step begins; later calls change nothing."""
        if self._began_s is None:
            self._began_s = now_s

    def reached(self, now_s: float, accuracies: Sequence[float], fraction: float, earlier: int = 0) -> None:
        """Note that epochs with these accuracies are complete, and a fraction of the next one.

        The first `earlier` of them were trained before this training began: they add to the epochs
        and the patience, and not to the pace.
        """
        self._earlier = earlier
        self._done = len(accuracies) + fraction
        self._reached_s = now_s
        if accuracies is not self._accuracies:
            self._accuracies = accuracies
            self._end = len(accuracies) + epochs_left(accuracies, self._epochs, self._patience)

    def seconds_left(self, now_s: float) -> float | None:
        """Seconds until the earliest end; None while nothing is known."""
        if self._began_s is None or self._done <= self._earlier:
            return None
        # The pace is that of this trainer: the epochs of an interrupted trial, which this one
        # resumes, took other ranks another time.
        per_epoch = (self._reached_s - self._began_s) / (self._done - self._earlier)
        return max(0.0, per_epoch * (self._end - self._done) - (now_s - self._reached_s))


# The wait until the digest shows the trial's own start. A proposal made before that might repeat
# the architecture that is in training.

LOOK_INTERVAL_S = 0.2
"""Seconds between two looks for the trial's start in the evidence."""

STALE_S = 60.0
"""Seconds after which a digest that does not show the start is given up."""


async def until_known(trial: int, planner: Planner, clock: Clock) -> None:
    """Wait until a look shows the start of a trial; rely on raw records if none does."""
    planner.note_start(trial)
    began_s = clock.monotonic_s()
    while not await asyncio.to_thread(_is_known, planner):
        if clock.monotonic_s() - began_s > STALE_S:
            await asyncio.to_thread(planner.distrust_digest, f"it has no entry for trial {trial}")
            return
        await clock.sleep(LOOK_INTERVAL_S)


def _is_known(planner: Planner) -> bool:
    try:
        return planner.knows_last_start()
    except OSError as error:
        log.warning("the evidence for the next trial cannot be read: %s", error)
        return False


log = logging.getLogger(__name__)

PROPOSE_INTERVAL_S = 60.0
"""Most seconds between two looks at the next candidate while a trial trains: each of thousands of
replicas opens a file of the shared file system for it. The last look comes when the candidate is
needed.
"""

FORECAST_INTERVAL_S = 1.0
"""Least time between two looks at the forecast of the trial's end."""


def _next_look_s(left_s: float | None, lead_s: float) -> float:
    """Seconds until the next look: half of the time until the next ranks are due, if known.

    Halving comes ever closer to the moment while the forecast itself still moves.
    """
    if left_s is None:
        return FORECAST_INTERVAL_S
    return min(PROPOSE_INTERVAL_S, max(FORECAST_INTERVAL_S, (left_s - lead_s) / 2))


class Trial:
    """The run of one job of AutoML."""

    def __init__(self, context: ReplicaContext, job: Job, standby: Standby) -> None:
        self.number = job.trial
        self._context = context
        self._job = job
        self._standby = standby
        self._config = context.config
        self._clock = context.clock
        self.log = TrialLog(context, job)
        plan = plan_round(job.round, self._config.max_epochs)
        self._forecast = Forecast(plan.epochs, plan.patience)
        self._early: bool | None = None

    async def run(self) -> None:
        """Plan, start and train.

        Raises TrialFailedError; on cancellation the ranks are ended first.
        """
        self.log.begin_phase("search")
        async with unhandled_errors_fail_it():
            ranks = await self._standby.take(self._job)
            try:
                await self._train(ranks)
            except TrialFailedError as error:
                raise await self._standby.blamed_for(error) or error from None
            finally:
                await ranks.drop()
        if self._early is None:
            raise TrialFailedError("protocol", "the trainer ended without reporting the end of the training")
        self.log.end("early_stop" if self._early else "completed")
        await asyncio.to_thread(self._tidy, ranks.plan)

    async def _train(self, ranks: WarmRanks) -> None:
        weights = await asyncio.to_thread(self._context.planner.weights_for, ranks.plan.proposal)
        await asyncio.to_thread(ranks.trainer.rename_log, self._context.paths.trial_log(self._job.trial))
        self.log.resume(await asyncio.to_thread(self._context.planner.earlier_qualities, self._job))
        self.log.start(ranks.plan, weights)
        # Not before the start is recorded: proposals must take this trial into account.
        getting_ahead = asyncio.create_task(self._get_ahead())
        try:
            await self._follow(ranks, await asyncio.to_thread(self._begin, ranks.plan, weights))
        finally:
            getting_ahead.cancel()
            (outcome,) = await asyncio.gather(getting_ahead, return_exceptions=True)
            if isinstance(outcome, Exception):  # costs the replica a wait, not the trial
                log.error("the next trial could not be prepared ahead", exc_info=outcome)

    async def _follow(self, ranks: WarmRanks, begin: Begin) -> None:
        if not ranks.ready:
            self.log.begin_phase(ranks.phase)
        async for message in ranks.coming_phases():
            self._handle(message)
        self._standby.learn(ranks)
        if ranks.built is not None:
            self.log.built(ranks.built)
        self.log.begin_phase("start")
        await ranks.trainer.begin(begin)
        async for report in ranks.trainer.messages(self._config.replica.trial_silence):
            self._handle(report)

    async def _get_ahead(self) -> None:
        """Propose ahead while the accelerators train, then warm up the next ranks in time."""
        job = self._next_job()
        with contextlib.suppress(asyncio.CancelledError):
            await until_known(self.number, self._context.planner, self._clock)
            began_s, looked_s = self._clock.monotonic_s(), -PROPOSE_INTERVAL_S  # the first look is due at once
            while not self._ends_soon():
                now_s = self._clock.monotonic_s()
                if job.point == 0 and now_s - looked_s >= PROPOSE_INTERVAL_S:
                    looked_s = now_s
                    await self._propose_ahead(job.round, now_s - began_s)
                left_s = self._forecast.seconds_left(self._clock.monotonic_s())
                await self._clock.sleep(_next_look_s(left_s, self._standby.lead_s))
            if job.point == 0:
                await self._propose_ahead(job.round, self._clock.monotonic_s() - began_s, last=True)
            await self._standby.warm_up(job)

    async def _propose_ahead(self, round_number: int, elapsed_s: float, last: bool = False) -> None:
        try:
            await asyncio.to_thread(self._context.planner.propose_ahead, round_number, elapsed_s, last)
        except (AiperfError, OSError) as error:
            log.warning("no candidate for round %d yet: %s", round_number, error)

    def warms_up_the_next(self) -> bool:
        """True if ranks may warm up next to this trial."""
        return self._config.replica.warm_up and self._context.shares_devices and not self._job.alone

    def _ends_soon(self) -> bool:
        if not self.warms_up_the_next():
            return False
        left_s = self._forecast.seconds_left(self._clock.monotonic_s())
        return left_s is not None and left_s <= self._standby.lead_s

    def _next_job(self) -> Job:
        """The next job if this trial does not fail; only its trial id is not known yet."""
        job = self._job
        coming = next_assignment(Assignment(job.round, job.point, job.base), job.trial, True, self._config.search)
        seed = coming.seed(self._config, self._context.replica)
        # The primary issues ids: 0 stands for one that is not known, and `Standby` fills it in.
        return Job(trial=0, round=coming.round, seed=seed, point=coming.point, base=coming.base, digest=job.digest)

    def _tidy(self, plan: Plan) -> None:
        forget(self._context.paths, plan.proposal.architecture.hash, self._job.trial)
        self._context.planner.prune_weights()

    def _begin(self, plan: Plan, weights: KeptWeights | None) -> Begin:
        paths, name = self._context.paths, plan.proposal.architecture.hash
        kept, evidence = paths.weights(name, self._job.trial), paths.evidence(self._job.trial)
        earlier = self._context.planner.resumed_by(self._job)
        checkpoint = take_over(paths, name, self._job.trial, earlier, kept, evidence)
        return Begin(
            trial=self._job.trial,
            inherited=self._inherited(plan.proposal, weights) if weights else None,
            save_weights_path=str(kept),
            checkpoint_path=str(checkpoint),
            restore=self.log.earlier_epochs,
            states=self._context.planner.recorded_states(earlier),
            checkpoint_interval_s=self._config.training.checkpoint_interval,
            evidence_path=str(evidence),
        )

    def _inherited(self, proposal: Proposal, weights: KeptWeights) -> InheritedWeights:
        paths = self._context.paths
        return InheritedWeights(
            architecture_path=str(paths.architecture(weights.architecture)),
            weights_path=str(paths.weights(weights.architecture, weights.trial)),
            morphs=tuple(morph_data(morph) for morph in proposal.morphs),
            noise=self._config.search.inherit_noise,
        )

    def _forecast_end(self, fraction: float) -> None:
        """Note that a fraction of the epoch in progress is done."""
        self._forecast.reached(self._clock.monotonic_s(), self.log.accuracies, fraction, self.log.earlier_epochs)

    def _handle(self, message: Message) -> None:
        match message:
            case TrainerProgress():
                self.log.progress(message)
                self._forecast_end(min(1.0, message.facts.images_trained / self._config.dataset.train_images))
            case TrainerPhase():
                if message.phase == "train":
                    self._forecast.began(self._clock.monotonic_s())
                self.log.begin_phase(message.phase, at_ms=message.monotonic_ms)
            case TrainerEpoch():
                self.log.epoch(message)
                self._forecast_end(0.0)
            case TrainerExchange():
                self.log.exchange(message)
            case TrainerDone():
                self._early = message.early
                self.log.begin_phase("idle", at_ms=message.monotonic_ms)
            case _:
                raise TrialFailedError("protocol", f"unexpected message {type(message).__name__}")
