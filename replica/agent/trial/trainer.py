"""The contract of a trainer as a replica uses it: warm up, begin, report, end."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from aiperf.facts import BuiltFacts
from aiperf.wire.messages import Begin, FromTrainer, TrainerPhase, TrainRequest


class Trainer(ABC):
    """The ranks of one training. If they die, the trial fails and nothing else does."""

    built: BuiltFacts | None = None
    """Facts of the model that the ranks have built; None before the end of the warm-up."""

    @abstractmethod
    def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        """Yield the phases of the warm-up, until the model is built and all is ready to begin.

        Raises TrialFailedError as `messages` does.
        """

    @abstractmethod
    async def begin(self, message: Begin) -> None:
        """Let the warm ranks begin to train."""

    @abstractmethod
    def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        """Yield the reports of the training, until it ends.

        Raises TrialFailedError if the trainer fails (with its own kind and reason), if it is silent
        for `silence_s` seconds ("hang"), if it sends anything but a message ("protocol"), or if it
        dies ("crash", or the failure of another rank).
        """

    @abstractmethod
    def rename_log(self, log: Path) -> None:
        """Move the log, which the ranks keep writing to."""

    @abstractmethod
    async def end(self) -> None:
        """End all ranks, by force if they do not end by themselves.

        May be called more than once.
        """

    async def until_ready(self, silence_s: float) -> None:
        """Wait for the end of the warm-up. Raises TrialFailedError as `messages` does."""
        async for _ in self.warm_up(silence_s):
            pass


StartTrainer = Callable[[TrainRequest, Path], Awaitable[Trainer]]
"""Function that starts the ranks of a training with a log. Raises TrialFailedError ("start")."""
