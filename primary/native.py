"""AIPerf's own manager: a replica that is free gets its next job at once."""

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.run_directory.claim import Claim, identity_of
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Job, Started
from primary.launchers import end_leftovers
from primary.managers import EndReason
from primary.resumption import Start, prepare_resumption, take_claim
from primary.run import conduct
from primary.work import open_work


class NativeManager:
    """Holds no job back."""

    def released(self, left_s: float) -> None:
        """No-op: the primary keeps the time."""

    async def turn(self, replica: int) -> None:
        """No-op: it is always the replica's turn."""

    def issued(self, replica: int, job: Job) -> None:
        """No-op: the job is in the history list."""

    def started(self, started: Started) -> None:
        """No-op: the start is in the history list."""

    def over(self, trial: int) -> None:
        """No-op: the end is in the history list."""

    def closed(self, reason: EndReason) -> None:
        """No-op: the end is in the history list."""


class NativeRun:
    """A run that this process conducts."""

    def __init__(self, config: RunConfig, paths: RunPaths, clock: Clock) -> None:
        self._config = config
        self._paths = paths
        self._clock = clock

    def begin(self) -> EndReason:
        """Conduct a new run to its end."""
        with self._claim() as claim:
            return self._conduct(Start(claim, open_work(self._config)))

    def resume(self, new_clock: bool) -> EndReason:
        """Conduct an interrupted run to its end. Raises UsageError as `prepare_resumption` does."""
        with self._claim() as claim:
            end_leftovers(self._config, self._clock, identity_of(self._paths.claims, claim.number))
            return self._conduct(prepare_resumption(self._paths, self._config, claim, new_clock, self._clock.utc_ms()))

    def _claim(self) -> Claim:
        return take_claim(self._paths, self._config, self._clock)

    def _conduct(self, start: Start) -> EndReason:
        return conduct(self._config, self._paths, start, NativeManager(), self._clock)
