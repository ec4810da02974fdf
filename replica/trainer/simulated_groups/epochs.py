"""The epochs of a training that only takes its time: alone, or in groups."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from msgspec.structs import replace

from aiperf.facts import EpochFacts
from replica.trainer.simulated_groups.events import GroupsInTime, Reported
from replica.trainer.simulated_groups.paces import ExchangePlan


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an epoch."""

    facts: EpochFacts
    waits_s: float = 0.0
    """Seconds until all other groups have ended, if the training has."""
    exchange: Reported | None = None
    """Work of groups and servers; None without groups."""


class Alone:
    """The epochs of ranks that all train synchronously."""

    ends_s = inf
    """No server can end it."""

    def __init__(self, train_images: int, seconds: Callable[[int], float]) -> None:
        self._train_images = train_images
        self._seconds = seconds
        """Gives the seconds of an epoch."""

    def train(self, epoch: int) -> float:
        """Begin an epoch; give the seconds of its training."""
        return self._seconds(epoch)

    def images(self, share: float) -> int:
        """Images after a share of these seconds."""
        return min(self._train_images - 1, int(self._train_images * share))

    def end(self, facts: EpochFacts, early: bool, evaluated_s: float = 0.0) -> Ended:
        """End an epoch: its facts are as they are."""
        return Ended(facts)


class InGroups:
    """The epochs of group 0, and what all groups and servers do in their time."""

    def __init__(self, plan: ExchangePlan) -> None:
        self._groups = GroupsInTime(plan)
        self._epochs = plan.epochs
        self._began_s = self._took_s = 0.0

    @property
    def ends_s(self) -> float:
        """Seconds from the begin of the first epoch until a server's last death ends the training;
        infinite if none is known yet."""
        return self._groups.ends_s

    def train(self, epoch: int) -> float:
        """Begin an epoch; give its seconds in group 0. The last one ends with all groups."""
        self._began_s = self._groups.now_s
        self._took_s = self._groups.train()
        if epoch == self._epochs:
            self._took_s += self._groups.await_others()
        return self._took_s

    def images(self, share: float) -> int:
        """Images of all groups since the last report."""
        return self._groups.images_at(self._began_s + share * self._took_s)

    def end(self, facts: EpochFacts, early: bool, evaluated_s: float = 0.0) -> Ended:
        """End an epoch, after an evaluation of some seconds; `early` if it ends the training.

        The facts get the images of all groups, and what groups and servers did.
        """
        self._groups.validate(evaluated_s)
        waits_s = 0.0
        if early and facts.epoch < self._epochs:
            self._groups.stop()
            waits_s = self._groups.await_others()
        found = self._groups.report(facts.epoch)
        return Ended(replace(facts, images_trained=found.images), waits_s, found)


Epochs = Alone | InGroups
