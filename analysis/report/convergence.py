"""Trainings that reached a lower error than the reference allows for their work."""

import numpy as np
from numpy.typing import NDArray

from aiperf.rules.convergence import references
from aiperf.rules.work import cumulative
from analysis.reading.run_data import RunData
from analysis.report.model import TrialPart
from analysis.report.statistics import initial_trial

Floats = NDArray[np.float64]


def work_in_epochs(data: RunData, initial_operations: int) -> Floats:
    """The work behind each epoch of `data.work.columns`, in epochs of the initial architecture.

    It is that of its trial up to it, and all of the trials that it resumes or has weights of.
    """
    columns, trials = data.work.columns, data.work.trials
    places = columns.epochs[:, 0]
    images = cumulative(columns.epochs[:, 3]).astype(np.float64)
    begins = np.searchsorted(places, np.arange(len(trials) + 1))
    unit = float(initial_operations * data.manifest.config.dataset.train_images)
    costs = np.array([float(cost.total) for cost in columns.costs]) / unit
    own = (images[begins[1:]] - images[begins[:-1]]) * costs
    before = np.zeros(len(trials))
    place_of = {trial: place for place, trial in enumerate(trials)}
    for place, trial in enumerate(trials):
        started = data.ledger.trials[trial].started
        earlier = {started.weights_from, started.resumes} if started is not None else set()
        # Ids grow; records that contradict this must not lead around in a circle.
        known = [place_of[other] for other in earlier if other in place_of and place_of[other] < place]
        before[place] = sum(before[other] + own[other] for other in known)
    found: Floats = (images[1:] - images[begins[places]]) * costs[places] + before[places]
    return found


def convergence_notices(data: RunData, trials: tuple[TrialPart, ...]) -> tuple[str, ...]:
    """A notice if any training of a run converged faster than the reference of its data set."""
    config = data.manifest.config
    reference, initial = references().get(config.run.dataset), initial_trial(trials)
    if data.is_science or config.training.trainer != "keras":
        return ()
    if reference is None or initial is None or not initial.image_operations:
        return ()
    columns = data.work.columns
    work = work_in_epochs(data, initial.image_operations)[columns.judged]
    errors, least = columns.errors()[1], reference.least(work)
    beyond = errors < least
    if not beyond.any():
        return ()
    places = columns.epochs[columns.judged, 0]
    worst = int(np.argmin(np.where(beyond, errors / np.maximum(least, 1e-12), np.inf)))
    count = len(np.unique(places[beyond]))
    return (
        f"convergence: {count} training(s) reached a lower error than any reference training with as much work; "
        f"trial {data.work.trials[places[worst]]} has {errors[worst]:.4f} after {work[worst]:.1f} epochs of the "
        f"initial architecture, and at least {least[worst]:.4f} is expected",
    )
