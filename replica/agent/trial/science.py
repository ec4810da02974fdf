"""The training of one model of a scientific workload, from its job to its target or last epoch."""

import asyncio
from collections.abc import Mapping
from functools import singledispatchmethod
from pathlib import Path

from aiperf.errors import TrialFailedError
from aiperf.network.operations import Operations
from aiperf.records.bodies import EpochCompleted, WorkloadStarted
from aiperf.records.lineage import epochs_of_training, first_ranks, lineage_of
from aiperf.records.reading import read_ledger
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.wire.messages import (
    Begin,
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
from replica.agent.trial.requests import ScienceTraining, default_rate, hybrid_of, recorded, science_request
from replica.agent.trial.trainer import Trainer
from replica.agent.trial.trial_log import TrialLog
from replica.agent.trial.unhandled import unhandled_errors_fail_it
from workloads.data.manifest import read_science_manifest
from workloads.science import SCIENCE
from workloads.science.contract import WorkloadSize, planned


class WorkloadTrial:
    """The run of one job of a scientific suite."""

    def __init__(self, context: ReplicaContext, job: Job) -> None:
        assert job.workload is not None
        self.number = job.trial
        self._context = context
        self._config = context.config
        self._job = job
        self._name = job.workload
        self._size = SCIENCE.load(job.workload).size(self._config.science.size)
        self.log = TrialLog(context, job)
        self._resumed: tuple[int, ...] = ()
        """The trials that this one resumes, the latest first."""
        self._states: tuple[str, ...] = ()
        self._first_ranks: int | None = None
        self._early: bool | None = None

    async def run(self) -> None:
        """Build, train and measure.

        Raises TrialFailedError; on cancellation the ranks are ended first.
        """
        self.log.begin_phase("start")
        async with unhandled_errors_fail_it():
            training = self._training()
            log_file = self._context.paths.trial_log(self._job.trial)
            trainer = await self._context.start_trainer(science_request(self._config, training), log_file)
            try:
                await self._train(trainer, training)
            finally:
                await trainer.end()
        if self._early is None:
            raise TrialFailedError("protocol", "the trainer ended without reporting the end of the training")
        self.log.end("early_stop" if self._early else "completed")
        await asyncio.to_thread(forget, self._context.paths, self._checkpoint_name, self._job.trial)

    def _training(self) -> ScienceTraining:
        science, size, own = self._config.science, self._size, self._size.schedule
        epochs = science.max_epochs or size.epochs
        chosen: Mapping[str, int | float | str] = {
            "batch_size": science.batch_size or size.batch_size,
            "learning_rate": science.learning_rate or default_rate(self._config, own.optimiser, own.learning_rate),
            "max_epochs": epochs,
            "dropout": size.dropout(),
            **own.as_recorded(epochs),
            **recorded(hybrid_of(self._config, own.optimiser, own.momentum)),
        }
        # None: nothing is trained (`workloads.science.contract`); the primary names all other data.
        folder = None if science.data_dir is None else str(Path(science.data_dir) / size.data.folder)
        return ScienceTraining(self._name, chosen, self._job.seed, self._context.precision, folder)

    async def _train(self, trainer: Trainer, training: ScienceTraining) -> None:
        # In threads: storage that does not answer must not keep the event loop from its heartbeats.
        earlier = await asyncio.to_thread(self._earlier)
        self._states = tuple(body.state for body in earlier.values() if body.state is not None)
        self.log.resume({number: body.quality or 0.0 for number, body in earlier.items()})
        body = await asyncio.to_thread(self._start, training)
        self.log.start_workload(body, cost_of(self._size))
        silence_s = self._config.replica.trial_silence
        async for message in trainer.warm_up(silence_s):
            self._handle(message)
        if trainer.built is not None:
            self.log.built(trainer.built)
        await trainer.begin(await asyncio.to_thread(self._begin))
        async for report in trainer.messages(silence_s):
            self._handle(report)

    def _start(self, training: ScienceTraining) -> WorkloadStarted:
        """Write the networks' files; give the record of the start. Raises DatasetError."""
        size, networks, store = self._size, {}, ArchitectureStore(self._context.paths)
        for name, build in size.networks.items():
            architecture = build()
            networks[name] = architecture.hash
            store.save(architecture)
        generated, fingerprint = _described(training.data_dir, size)
        return WorkloadStarted(
            trial=self._job.trial,
            replica=self._context.replica,
            workload=self._name,
            instance=self._job.instance or 0,
            size=self._config.science.size,
            framework=self._config.training.framework,
            networks=networks,
            training_passes=tuple(each.as_recorded() for each in size.training),
            evaluation_passes=tuple(each.as_recorded() for each in size.evaluation),
            further_training=size.further_training,
            further_evaluation=size.further_evaluation,
            target=dict(size.target),
            higher=size.higher,
            hyperparameters=dict(training.hyperparameters),
            epochs=int(training.hyperparameters["max_epochs"]),
            precision=self._context.precision,
            trainer=self._config.training.trainer,
            dataset=size.data.folder,
            generated=generated,
            fingerprint=fingerprint,
            resumes=self._job.resumes,
        )

    def _earlier(self) -> dict[int, EpochCompleted]:
        """The epochs of the trials that this one resumes."""
        if self._job.resumes is None:
            return {}
        ledger = read_ledger(self._context.paths)
        self._resumed = tuple(entry.trial for entry in lineage_of(ledger, self._job.resumes))
        self._first_ranks = first_ranks(ledger, self._job.resumes)
        return epochs_of_training(ledger, self._job.resumes)

    @property
    def _checkpoint_name(self) -> str:
        return next(iter(self._size.networks.values()))().hash

    def _begin(self) -> Begin:
        evidence = self._context.paths.evidence(self._job.trial)
        checkpoint = take_over(self._context.paths, self._checkpoint_name, self._job.trial, self._resumed, evidence)
        return Begin(
            trial=self._job.trial,
            checkpoint_path=str(checkpoint),
            restore=self.log.earlier_epochs,
            states=self._states,
            first_ranks=self._first_ranks,
            checkpoint_interval_s=self._config.training.checkpoint_interval,
            evidence_path=str(evidence),
        )

    @singledispatchmethod
    def _handle(self, message: Message) -> None:
        raise TrialFailedError("protocol", f"unexpected message {type(message).__name__}")

    @_handle.register
    def _(self, message: TrainerPhase) -> None:
        self.log.begin_phase(message.phase, at_ms=message.monotonic_ms)

    @_handle.register
    def _(self, message: TrainerProgress) -> None:
        self.log.progress(message)

    @_handle.register
    def _(self, message: TrainerEpoch) -> None:
        self.log.epoch(message)

    @_handle.register
    def _(self, message: TrainerExchange) -> None:
        self.log.exchange(message)

    @_handle.register
    def _(self, message: TrainerDone) -> None:
        self._early = message.early
        self.log.begin_phase("idle", at_ms=message.monotonic_ms)


def _described(data_dir: str | None, size: WorkloadSize) -> tuple[bool, str]:
    """Say if the data are generated, and give their fingerprint. Raises DatasetError."""
    if data_dir is None:
        dataset = planned(size.data)
        return dataset.generated, dataset.fingerprint
    manifest = read_science_manifest(Path(data_dir))
    return manifest.generated is not None, manifest.fingerprint


def cost_of(size: WorkloadSize) -> Operations:
    """The operations of one image: forward is its evaluation, backward the rest of its training.

    A workload's training may pass an image through several networks, and not only forward and
    backward once: the difference makes both add up to the whole cost.
    """
    evaluated = size.evaluation_operations()
    return Operations(evaluated, size.training_operations() - evaluated)
