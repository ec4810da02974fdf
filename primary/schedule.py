"""What a replica is given next, as a pure function of what it did last."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.config import SearchSection


@dataclass(frozen=True, slots=True)
class Step:
    """One training of a replica: its round, and its point in it (0: the round's own, later ones tune)."""

    round: int = 1
    point: int = 0
    base: int | None = None
    """The trial whose architecture a later point trains."""


def next_step(last: Step, trial: int, completed: bool, search: SearchSection) -> Step:
    """The step after `last`, which was trial `trial`.

    A failed training of a round is repeated, a failed point is not: the round goes on with the next one.
    """
    if last.point == 0 and not completed:
        return last
    points = search.hpo_points if search.hpo != "none" and last.round >= search.hpo_first_round else 0
    if last.point < points:
        return Step(last.round, last.point + 1, last.base if last.point else trial)
    return Step(last.round + 1)
