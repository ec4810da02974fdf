"""Trained weights in the run directory: kept for children while they are among the best."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import is_there
from replica.search.knowledge import RankedTrial

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Trained weights that a child may start from."""

    trial: int
    architecture: str


def find_weights(ranked: Iterable[RankedTrial], paths: RunPaths) -> KeptWeights | None:
    """The weights of the first of these trials that has any; None if none does."""
    for trial in ranked:
        name = trial.started.architecture
        if is_there(paths.weights(name, trial.trial)):
            return KeptWeights(trial.trial, name)
    return None


def delete_weights(trials: Iterable[RankedTrial], paths: RunPaths) -> None:
    """Delete the weights of trials."""
    for trial in trials:
        path = paths.weights(trial.started.architecture, trial.trial)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # costs disk space, nothing else: the trial has ended well
            log.warning("%s cannot be deleted: %s", path, error)
