"""A training repeated by the very program that trained in the run, into a folder of its own."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from numpy.typing import NDArray

from aiperf.config.settings import RunConfig
from aiperf.errors import RunDirectoryError, TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.host import this_host
from aiperf.machine.accelerators import find_accelerators, visible_devices
from aiperf.run_directory.step_evidence import read_rows
from aiperf.wire.messages import Begin, TrainerEpoch, TrainRequest
from replica.agent.trial.trainer_process import RankSetup, TrainerProcess


@dataclass(frozen=True, slots=True)
class Repetition:
    """The outcome of a repetition."""

    rows: NDArray[Any] | None
    """Rows of the first epoch (`aiperf.run_directory.step_evidence`), if steps were repeated."""
    epochs: tuple[EpochFacts, ...]
    """Epochs that were trained, and epoch 0 for weights that were evaluated."""

    @property
    def evaluated(self) -> EpochFacts | None:
        """The evaluation of kept weights."""
        return next((facts for facts in self.epochs if facts.epoch == 0), None)

    @property
    def trained(self) -> EpochFacts | None:
        """The first epoch, if it was trained in full."""
        return next((facts for facts in self.epochs if facts.epoch == 1), None)


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

    Raises TrialFailedError ("machine") if it cannot have so many.
    """
    own = find_accelerators()
    if own and len(own) < ranks:
        raise TrialFailedError("machine", f"the run had {ranks} ranks, this machine has {len(own)} accelerators")
    if ranks > 1 and importlib.util.find_spec("horovod") is None:
        raise TrialFailedError("machine", f"the run had {ranks} ranks, and Horovod is not installed here")
    cpus = config.replica.cpu_threads or max(1, this_host().usable_cpus() // replicas_per_node(config) // ranks)
    return RankSetup(config, ranks, cpus, environment=visible_devices(own[:ranks]))


async def repeat(setup: RankSetup, request: TrainRequest, begin: Begin, folder: Path) -> Repetition:
    """Have the ranks do what `begin` says; evidence and log go into the folder, which is empty.

    Raises TrialFailedError.
    """
    evidence, silence_s = folder / f"trial-{begin.trial:06d}.rows", setup.config.replica.trial_silence
    trainer = await TrainerProcess.start(setup, request, folder / f"trial-{begin.trial:06d}.log")
    epochs = []
    try:
        await trainer.until_ready(silence_s)
        await trainer.begin(replace(begin, evidence_path=str(evidence)))
        async for message in trainer.messages(silence_s):
            if isinstance(message, TrainerEpoch):
                epochs.append(message.facts)
    finally:
        await trainer.end()
    return Repetition(_first_rows(evidence), tuple(epochs))


def _first_rows(evidence: Path) -> NDArray[Any] | None:
    try:
        return read_rows(evidence).get(1) if evidence.exists() else None
    except RunDirectoryError as error:
        raise TrialFailedError("evidence", str(error)) from None
