"""The trace of a trial: every event is recorded in the history list, then reported."""

from collections.abc import Mapping
from typing import Literal

from msgspec.structs import asdict

from aiperf.facts import BuiltFacts, EpochFacts, Measured
from aiperf.network.operations import Operations, totals
from aiperf.records.bodies import (
    EpochCompleted,
    GroupExchanged,
    PhaseBegan,
    ProgressMade,
    ServerServed,
    TrialBuilt,
    TrialEnded,
    TrialStarted,
    WorkloadStarted,
)
from aiperf.rules.prediction import predicted_accuracy
from aiperf.rules.rounds import plan_round
from aiperf.wire.messages import (
    Job,
    Phase,
    Progress,
    Recorded,
    Started,
    TrainerEpoch,
    TrainerExchange,
    TrainerProgress,
)
from replica.agent.trial.context import ReplicaContext
from replica.search.kept_weights import KeptWeights
from replica.search.planner import Plan
from search_space.morphisms import morph_data

OWN_PHASES: tuple[Phase, ...] = ("search", "start")
"""Phases in which no rank works, so that a wait for storage holds the replica up."""


class TrialLog:
    """The record of one trial's events, and its reports to the primary."""

    def __init__(self, context: ReplicaContext, job: Job) -> None:
        self.end_record: TrialEnded | None = None
        """The end of the training, once it is recorded."""
        self._context = context
        self._job = job
        self._epochs = 0
        self._model: WorkloadStarted | None = None
        self._qualities: dict[int, float] = {}
        """Qualities by epoch, with those of the trials that this one resumes."""
        self.accuracies: list[float] = []
        """The qualities in the order of the epochs; another list at every change."""
        self._best: float | None = None
        self._own: set[int] = set()
        """Numbers of the epochs that this trial itself has trained."""
        self._phase: Phase = "idle"
        self._waits = False
        self._interrupted: Phase = "idle"
        """The phase that a wait for storage has interrupted."""
        self._epoch = 0
        self._cost = Operations(0, 0)
        self._done_operations = 0
        self._open_operations = 0
        """Operations of the unfinished epoch, at its last progress report."""

    @property
    def earlier_epochs(self) -> int:
        """Number of epochs in `accuracies` of the trials that this one resumes."""
        return len(self._qualities) - len(self._own)

    def resume(self, qualities: Mapping[int, float]) -> None:
        """Begin with the qualities, by epoch, of the trials that this one resumes."""
        self._keep(dict(sorted(qualities.items())))

    def begin_phase(self, phase: Phase, at_ms: int | None = None) -> None:
        """Record a phase of this trial, now or from a moment of the node's monotonic clock on."""
        if self._waits and phase in OWN_PHASES:
            self._interrupted, phase = phase, "storage"
        self._begin_phase(phase, self._job.trial, at_ms)

    def idle(self) -> None:
        """Record that the accelerators wait from now on, for no trial in particular."""
        self._begin_phase("idle", None, None)

    def wait_for_storage(self, waits: bool) -> None:
        """Record a wait for storage as a phase, unless ranks work meanwhile."""
        self._waits = waits
        if waits and self._phase in OWN_PHASES:
            self.begin_phase(self._phase)
        elif not waits and self._phase == "storage":
            self.begin_phase(self._interrupted)

    def _begin_phase(self, phase: Phase, trial: int | None, at_ms: int | None) -> None:
        # Trainers and the agent may report the same phase in turn; the record has each change once.
        if phase == self._phase:
            return
        self._phase = phase
        body = PhaseBegan(replica=self._context.replica, trial=trial, phase=phase)
        self._context.writer.append(body, at_monotonic_ms=at_ms)
        self._report()

    def start_workload(self, body: WorkloadStarted, cost: Operations) -> None:
        """Record which model of a scientific workload the trial trains.

        `cost`: forward is what evaluating an image takes, backward what training it takes beyond.
        """
        self._cost, self._epochs, self._model = cost, body.epochs, body
        self._context.writer.append(body)
        self._report()

    def start(self, plan: Plan, weights: KeptWeights | None) -> None:
        """Record what the trial trains, and from which weights it starts."""
        self._epochs = plan_round(self._job.round, self._context.config.max_epochs).epochs
        self._cost = totals(plan.proposal.architecture)[0]
        self._context.writer.append(_start_record(self._context, self._job, plan, weights, self._epochs))
        self._context.report(start_of(self._job.trial, plan, self._epochs, self._cost))

    def built(self, facts: BuiltFacts) -> None:
        """Record what the trainer has built for the trial."""
        self._context.writer.append(TrialBuilt(trial=self._job.trial, **asdict(facts)))

    def progress(self, message: TrainerProgress) -> None:
        """Record the images of an unfinished epoch."""
        facts = message.facts
        body = ProgressMade(trial=self._job.trial, **asdict(facts))
        self._context.writer.append(body, at_monotonic_ms=message.monotonic_ms)
        self._reach(facts.epoch)
        self._open_operations = self._cost.work(facts.images_trained, facts.images_evaluated)
        self._report()

    def epoch(self, message: TrainerEpoch) -> None:
        """Record a completed epoch, and have the primary witness the record."""
        facts = message.facts
        body = EpochCompleted(trial=self._job.trial, **asdict(facts))
        self._context.writer.append(body, at_monotonic_ms=message.monotonic_ms)
        # At once: the writer's head is this record until another one follows.
        self._report_record(facts)
        self._epoch = facts.epoch
        self._done_operations += self._cost.work(facts.images_trained, facts.images_evaluated)
        self._open_operations = 0
        self._reach(facts.epoch)
        self._keep({**self._qualities, facts.epoch: facts.quality or 0.0})
        self._own.add(facts.epoch)
        self._report()

    def exchange(self, message: TrainerExchange) -> None:
        """Record the work of a hybrid training's groups and servers in an epoch."""
        trial, append = self._job.trial, self._context.writer.append
        for group in message.groups:
            append(GroupExchanged(trial=trial, **asdict(group)), at_monotonic_ms=message.monotonic_ms)
        for server in message.servers:
            append(ServerServed(trial=trial, **asdict(server)), at_monotonic_ms=message.monotonic_ms)

    def _report_record(self, facts: EpochFacts) -> None:
        head = self._context.writer.head
        assert head is not None
        trial, quality = self._job.trial, facts.quality
        self._context.report(
            Recorded(trial=trial, epoch=facts.epoch, quality=quality, sequence=head[0], digest=head[1])
        )

    def _reach(self, epoch: int) -> None:
        """Drop epochs that the trial which this one resumes had reached and this one repeats."""
        if self._qualities and next(reversed(self._qualities)) >= epoch:  # they are in order
            self._keep({number: quality for number, quality in self._qualities.items() if number < epoch})

    def _keep(self, qualities: dict[int, float]) -> None:
        # New objects, never changed ones: `Forecast` compares the list's identity to see a change.
        self._qualities, self.accuracies = qualities, list(qualities.values())
        self._best = max(self.accuracies, default=None)

    def end(self, reason: Literal["completed", "early_stop"]) -> None:
        """Record the end of the training, with the accuracy predicted from it in warm-up rounds."""
        body = TrialEnded(trial=self._job.trial, reason=reason, predicted_accuracy=self._predicted())
        self._context.writer.append(body)
        self.end_record = body

    def _predicted(self) -> float | None:
        if self._job.workload is not None:
            return None
        maximum = self._context.config.max_epochs
        predicts = plan_round(self._job.round, maximum).predicts
        return predicted_accuracy(self._qualities, maximum) if predicts else None

    def stop(self) -> None:
        """Record that the run ended this trial, unless it had ended by itself."""
        if self.end_record is None:
            self._context.writer.append(TrialEnded(trial=self._job.trial, reason="stopped"))

    def _report(self) -> None:
        self._context.report(
            Progress(
                trial=self._job.trial,
                phase=self._phase,
                epoch=self._epoch,
                epochs=self._epochs,
                accuracy=self._best if self._model is None else None,
                measured=_measured(self._model, self._best) if self._model else None,
                operations=self._done_operations + self._open_operations,
            )
        )


def _measured(model: WorkloadStarted, quality: float | None) -> Measured:
    """The best quality as the workload measures it; errors are recorded with the other sign."""
    measure, target = next(iter(model.target.items()))
    value = quality if quality is None or model.higher else -quality
    return Measured(workload=model.workload, measure=measure, value=value, target=target, higher=model.higher)


def start_of(trial: int, plan: Plan, epochs: int, cost: Operations) -> Started:
    """The report of the start of a trial."""
    architecture = plan.proposal.architecture
    return Started(
        trial=trial,
        architecture=architecture.hash,
        parent=plan.proposal.parent,
        morphs=tuple(morph_data(morph) for morph in plan.proposal.morphs),
        hyperparameters=plan.hyperparameters,
        epochs=epochs,
        operations_per_image=cost.total,
        depth=architecture.depth,
        weights=architecture.parameter_count,
    )


def _start_record(
    context: ReplicaContext, job: Job, plan: Plan, weights: KeptWeights | None, epochs: int
) -> TrialStarted:
    config, proposal = context.config, plan.proposal
    return TrialStarted(
        trial=job.trial,
        replica=context.replica,
        round=job.round,
        architecture=proposal.architecture.hash,
        parent=proposal.parent,
        morphs=tuple(morph_data(morph) for morph in proposal.morphs),
        point=job.point,
        base=job.base,
        weights_from=weights.trial if weights else None,
        hyperparameters=plan.hyperparameters,
        epochs=epochs,
        precision=context.precision,
        resumes=job.resumes,
        trainer=config.training.trainer,
        input=config.training.input,
        dataset=config.run.dataset,
        fingerprint=config.fingerprint,
        memory_bytes=context.planner.memory_bytes,
        cursor=plan.cursor.text,
        cursor_hash=plan.cursor.hash,
    )
