"""The contract of faults: what is done to a run, until what it leads to has happened."""

import random
from typing import ClassVar, Protocol

from tests.faults.attacked import Attacked


class Fault(Protocol):
    """One kind of fault, made anew for each run."""

    variants: ClassVar[tuple[str, ...]]
    """Draws are from these."""

    def missing(self) -> str:
        """What this machine or user lacks for it; empty if it can be done."""

    def prepare(self, run: Attacked, draw: random.Random) -> None:
        """Before the run begins: change its environment or its place."""

    def strike(self, run: Attacked, variant: str, draw: random.Random) -> bool:
        """Do it and undo it. False if there was no victim."""

    def clean(self) -> None:
        """After the run has ended."""
