"""Settings of tasks with one network."""

from collections.abc import Callable
from dataclasses import dataclass

from aiperf.network.architecture import Architecture


@dataclass(frozen=True, slots=True)
class OneNetwork:
    """The network that a task trains."""

    build: Callable[[], Architecture]
