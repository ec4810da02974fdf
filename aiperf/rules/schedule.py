"""What a replica is given next, as a pure function of what it did last.

The primary issues jobs by it; a replica uses it to prepare for the job that will come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aiperf.config.sections import SearchSection
from aiperf.config.settings import RunConfig
from aiperf.seeds import fold_seed


@dataclass(frozen=True, slots=True)
class Step:
    """One training of a replica: its round, and its point in it (0: the round's own, later ones tune)."""

    round: int = 1
    point: int = 0
    base: int | None = None
    """The trial whose architecture a later point trains."""
    attempt: int = 0
    """How often the training of the round was tried before, in vain."""

    def seed(self, config: RunConfig, replica: int) -> int:
        """The seed of the training: known before the primary gives it a trial id."""
        return fold_seed(config.run.seed, f"train/{self.round}/{self.point}", self.attempt, replica)


def next_step(last: Step, trial: int, completed: bool, search: SearchSection) -> Step:
    """The step after `last`, which was trial `trial`.

    A failed training of a round is repeated, a failed point is not: the round goes on with the next one.
    """
    if last.point == 0 and not completed:
        return replace(last, attempt=last.attempt + 1)
    points = search.hpo_points if search.hpo != "none" and last.round >= search.hpo_first_round else 0
    if last.point < points:
        return Step(last.round, last.point + 1, last.base if last.point else trial)
    return Step(last.round + 1)
