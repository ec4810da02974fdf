"""The contract of a course: the made-up facts of a simulated training's epochs."""

import math
from typing import Protocol

from aiperf.facts import EpochFacts
from aiperf.network.architecture import Architecture


class SimulatedCourse(Protocol):
    """The course of a simulated training: facts of its epochs, none of which took place."""

    @property
    def architecture(self) -> str:
        """Hash of the network that it claims to have built."""

    @property
    def networks(self) -> tuple[Architecture, ...]:
        """The networks whose parameters groups would exchange."""

    @property
    def train_images(self) -> int:
        """Images that an epoch trains."""

    def facts(self, epoch: int) -> EpochFacts:
        """The facts of an epoch, the same after a resumption."""

    def reached(self, facts: EpochFacts) -> bool:
        """True if an epoch ends the training at its target."""


def accuracy_after(epoch: int, max_epochs: int, quality: float) -> float:
    """A made-up learning curve that rises towards `quality`."""
    return quality * (1 - math.exp(-4 * epoch / max_epochs))
