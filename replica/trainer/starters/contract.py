"""The contract of a rank starter: a pure function from a request to a command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankRequest:
    """What to start: the command line of one rank, and how many ranks."""

    command: tuple[str, ...]
    ranks: int = 1


RankStarter = Callable[[RankRequest], list[str]]
"""Gives the argument list that starts all ranks; rank 0 inherits standard input and output."""
