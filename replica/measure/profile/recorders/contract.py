"""The contract of a profiler: it records the work of a framework between `start` and `stop`."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from replica.measure.profile.recorded.recording import Recording


class Recorder(Protocol):
    """The profiler of one framework, used once."""

    def start(self) -> None:
        """Begin to record. Raises EnvironmentNotReadyError if something for it is missing."""

    def span(self, name: str, number: int) -> AbstractContextManager[Any]:
        """Mark a part of the program; `number` is that of the step."""

    def stop(self, held: int) -> Recording:
        """End, and read the recording.

        `held` are the bytes that were known to be in use before: some profilers count from their
        own begin.
        """
