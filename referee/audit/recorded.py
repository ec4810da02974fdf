"""Records and kept files of the trials that an audit looks at."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from aiperf.errors import AiperfError, RunDirectoryError, TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.records.bodies import JobIssued, TrialStarted
from aiperf.records.entries import TrialLedger
from aiperf.rules.score import error_of
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.step_evidence import hash_rows, read_rows
from aiperf.wire.messages import InheritedWeights, TrainRequest
from analysis.reading.run_data import RunData
from referee.audit.draws import Claim
from referee.audit.pace import claimed_pace, other_device
from replica.agent.trial.requests import TrialTraining, train_request
from replica.trainer.model.weights import epoch_of


@dataclass(frozen=True, slots=True)
class KeptEpoch:
    """Weights that were kept at the end of an epoch."""

    trial: int
    epoch: int
    path: Path


class Recorded:
    """A run's claims, evidence and kept weights by trial."""

    def __init__(self, paths: RunPaths, data: RunData) -> None:
        self._paths = paths
        self._data = data
        self.config = data.manifest.config

    def claims(self) -> list[Claim]:
        """Every completed epoch that counts, with the operations that it claims."""
        return [
            Claim(trial, body.epoch, self._data.work.costs[trial].work(body.images_trained, body.images_evaluated))
            for trial, body in self._epochs()
        ]

    def deciding(self) -> Claim | None:
        """The epoch that decides the run's error.

        Of several with the same error, one whose weights are kept, else the first.
        """
        errors = {
            (trial, body.epoch): error_of(body.correct, body.images_evaluated)
            for trial, body in self._epochs()
            if body.correct is not None and body.images_evaluated > 0
        }
        best = [place for place, error in sorted(errors.items()) if error == min(errors.values())]
        # Weights are kept of one epoch of a trial. Of equal errors one that can be checked is
        # taken.
        chosen = next((place for place in best if self.weights_of(*place) is not None), best[0] if best else None)
        return next((claim for claim in self.claims() if (claim.trial, claim.epoch) == chosen), None)

    def resumed(self) -> list[Claim]:
        """The first epoch of each training that was resumed after an earlier one."""
        first: dict[int, int] = {}
        for trial, body in self._epochs():
            first[trial] = min(body.epoch, first.get(trial, body.epoch))
        return [claim for claim in self.claims() if claim.epoch > 1 and first[claim.trial] == claim.epoch]

    def _epochs(self) -> Iterator[tuple[int, EpochFacts]]:
        """Every completed epoch that counts, with its trial."""
        for trial in self._data.work.trials:
            yield from ((trial, epoch.body) for epoch in self._data.work.epochs_of(trial))

    def ledger(self, trial: int) -> TrialLedger:
        """The records of a trial."""
        return self._data.ledger.trials[trial]

    def facts(self, trial: int, epoch: int) -> EpochFacts:
        """The record of an epoch, of the trial or of one that it resumes. Raises KeyError."""
        for entry in self._chain(trial):
            if epoch in entry.epochs:
                return entry.epochs[epoch].body
        raise KeyError(epoch)

    def first_epochs(self, entry: TrialLedger, most: int) -> list[EpochFacts]:
        """The records of a trial's own epochs from the first on, at most this many."""
        found: list[EpochFacts] = []
        while len(found) < most and len(found) + 1 in entry.epochs:
            found.append(entry.epochs[len(found) + 1].body)
        return found

    def origin(self, trial: int) -> TrialLedger:
        """The trial itself, or the one that it resumes at a later epoch: it began with epoch 1.

        Raises TrialFailedError ("records") if there is none.
        """
        for entry in self._chain(trial):
            if 1 in entry.epochs and entry.started is not None and entry.issued is not None:
                return entry
        raise TrialFailedError("records", f"there is no record of epoch 1 of trial {trial}")

    def _chain(self, trial: int | None) -> Iterator[TrialLedger]:
        seen: set[int] = set()
        # Forged records may resume each other in a circle.
        while trial is not None and trial not in seen and trial in self._data.ledger.trials:
            seen.add(trial)
            entry = self.ledger(trial)
            yield entry
            trial = entry.started.resumes if entry.started is not None else None

    def ranks(self, entry: TrialLedger) -> int:
        """Ranks of a trial, as its trainer has reported or its replica at its start."""
        if entry.built is not None:
            return len(entry.built.devices)
        assert entry.started is not None
        replica = self._data.ledger.replicas.get(entry.started.replica)
        ready = replica.ready if replica is not None else None
        return ready.accelerators if ready is not None else 1

    def images_per_step(self, entry: TrialLedger) -> int:
        """Images of all ranks in a step but the last. Raises TrialFailedError ("records")."""
        return self.request(entry, None).batch_size * self.ranks(entry)

    def on_cpus(self, entry: TrialLedger) -> bool:
        """True if all ranks of a trial computed on CPUs."""
        return entry.built is not None and set(entry.built.devices) == {"cpu"}

    def pace(self, claim: Claim) -> float | None:
        """Trained images per second of a drawn epoch; None if the records do not say."""
        return claimed_pace(self._data, claim)

    def other_device(self, trial: int) -> str:
        """The difference between the devices of a trial and those of this machine; "" if none."""
        return other_device(self._data, self.ledger(trial))

    def rows(self, trial: int, epoch: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The rows of an epoch, and those of its whole trial, as one array.

        Raises RunDirectoryError if they are not those of the epoch's record.
        """
        file = self._paths.evidence(trial)
        by_epoch, digest = read_rows(file), self.facts(trial, epoch).evidence
        if digest is None:
            raise RunDirectoryError(f"the record of epoch {epoch} has no hash of its evidence")
        if epoch not in by_epoch:
            raise RunDirectoryError(f"{file.name} has no rows of epoch {epoch}")
        # The file was written by the trainer and can be changed later; the record's hash is in the
        # chain.
        if hash_rows(by_epoch[epoch]) != digest:
            raise RunDirectoryError(f"the rows of {file.name} are not those of the epoch's record")
        return by_epoch[epoch], _joined(by_epoch)

    def weights_of(self, trial: int, epoch: int | None = None) -> KeptEpoch | None:
        """The kept weights of a trial, or None; with an epoch only if they are of that one."""
        started = self.ledger(trial).started
        path = self._paths.weights(started.architecture, trial) if started is not None else None
        if path is None or not path.exists():
            return None
        try:
            found = epoch_of(path)
        except AiperfError:
            found = None
        kept = KeptEpoch(trial, found or 0, path)  # epoch 0: the file does not say, or cannot be read
        return kept if epoch in (None, found) else None

    def request(self, entry: TrialLedger, data_dir: Path | None) -> TrainRequest:
        """The request that the ranks of a trial were given.

        Raises TrialFailedError ("records") if its records do not say.
        """
        issued, started = _begun(entry)
        training = TrialTraining(
            started.architecture, started.hyperparameters, started.round, issued.seed, started.precision
        )
        try:
            request = train_request(self.config, self._paths, training)
        except (KeyError, ValueError) as error:
            raise TrialFailedError("records", f"its hyperparameters cannot be used: {error!r}") from None
        return request if data_dir is None else replace(request, data_dir=str(data_dir))

    def inherited(self, entry: TrialLedger) -> tuple[InheritedWeights, int] | None:
        """The weights that a trial began with and the trial that they are of; None: He's.

        Raises TrialFailedError ("weights") if they are not kept.
        """
        _, started = _begun(entry)
        if started.weights_from is None:
            return None
        parent = self._data.ledger.trials.get(started.weights_from)
        if parent is None or parent.started is None or self.weights_of(started.weights_from) is None:
            raise TrialFailedError(
                "weights", f"the weights of trial {started.weights_from} that it began with are gone"
            )
        name = parent.started.architecture
        weights = InheritedWeights(
            architecture_path=str(self._paths.architecture(name)),
            weights_path=str(self._paths.weights(name, started.weights_from)),
            morphs=started.morphs,
            noise=self.config.search.inherit_noise,
        )
        return weights, started.weights_from


def _begun(entry: TrialLedger) -> tuple[JobIssued, TrialStarted]:
    if entry.issued is None or entry.started is None:
        raise TrialFailedError("records", f"trial {entry.trial} was not issued or not started")
    return entry.issued, entry.started


def _joined(by_epoch: dict[int, NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(list(by_epoch.values()))
