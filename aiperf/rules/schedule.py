"""The next training of a replica, as a pure function of its last one.

The primary issues jobs by it; a replica uses it to get ready for its next job.
"""

from dataclasses import dataclass, replace

from aiperf.config.sections.run import SearchSection
from aiperf.config.settings import RunConfig
from aiperf.seeds import fold_seed

RANDOM_POINTS = 5
"""Points of a run that are drawn at random before the tuner learns from the results."""

MAX_RESUMPTIONS = 2
"""A training that is interrupted once more after this many resumptions is given up."""


def draws_at_random(done: int, running: int) -> bool:
    """True if a learning tuner draws its next point at random.

    So it does as long as a run has no result, or fewer than `RANDOM_POINTS` points. `done` counts
    points with a result (an accuracy, or out of memory), `running` those still in progress.
    """
    return done == 0 or done + running < RANDOM_POINTS


@dataclass(frozen=True, slots=True)
class Assignment:
    """One training of a replica: its round, and its point (0: the round's own, later ones tune)."""

    round: int = 1
    point: int = 0
    base: int | None = None
    """The trial whose architecture a later point trains."""
    attempt: int = 0
    """Failed attempts at the training of the round."""

    def seed(self, config: RunConfig, replica: int) -> int:
        """The seed of the training; the trial id, which only the primary knows, is not in it."""
        return fold_seed(config.run.seed, f"train/{self.round}/{self.point}", self.attempt, replica)


def next_assignment(last: Assignment, trial: int, completed: bool, search: SearchSection) -> Assignment:
    """The assignment after `last`, which was trial `trial`.

    A failed training of a round is repeated. A failed point is not: the next point follows.
    """
    if last.point == 0 and not completed:
        return replace(last, attempt=last.attempt + 1)
    points = search.hpo_points if search.hpo != "none" and last.round >= search.hpo_first_round else 0
    if last.point < points:
        return Assignment(last.round, last.point + 1, last.base if last.point else trial)
    return Assignment(last.round + 1)
