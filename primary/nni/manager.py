"""The manager of a run under NNI: one job for every trial that NNI has room for."""

import asyncio
from collections.abc import Callable

from msgspec.structs import asdict

from aiperf.wire.messages import Job, Message, Started
from primary.managers import EndReason
from primary.nni.messages import Clock, Closed, Offer, Value, Wanted

_NOT_SHOWN = {"trial", "morphs", "hyperparameters"}


class NniManager:
    """Holds replicas back until NNI wants a trial; `send` passes messages to NNI's tuner.

    NNI shows a trial with the parameters that it gets at its start. A job is therefore offered to
    NNI when its architecture and hyperparameters are known, after its replica has begun.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._room = asyncio.Semaphore(0)
        self._unoffered: dict[int, dict[str, Value | None]] = {}
        """Jobs that were not offered to NNI yet, by trial."""

    def want(self, wanted: Wanted) -> None:
        """Note that NNI has room for more trials."""
        for _ in range(wanted.jobs):
            self._room.release()

    def released(self, left_s: float) -> None:
        """Let NNI's experiment last as long as the run."""
        self._send(Clock(left_s=left_s))

    async def turn(self, replica: int) -> None:
        """Wait until NNI has room for another trial; the longest waiting replica comes first."""
        await self._room.acquire()

    def issued(self, replica: int, job: Job) -> None:
        """Remember the facts of the job that are known already."""
        known = {"trial": job.trial, "round": job.round, "point": job.point, "resumes": job.resumes}
        self._unoffered[job.trial] = {"replica": replica, **known}

    def started(self, started: Started) -> None:
        """Offer the job to NNI."""
        facts = {name: value for name, value in asdict(started).items() if name not in _NOT_SHOWN}
        self._offer(started.trial, {**facts, **started.hyperparameters})

    def over(self, trial: int) -> None:
        """Offer the job if it failed before it started: NNI shows failures too."""
        self._offer(trial, {})

    def closed(self, reason: EndReason) -> None:
        """Announce to NNI's tuner that no more jobs will come."""
        self._send(Closed(reason=reason))

    def _offer(self, trial: int, found: dict[str, Value | None]) -> None:
        known = self._unoffered.pop(trial, None)
        if known is not None:
            parameters = {name: value for name, value in {**known, **found}.items() if value is not None}
            self._send(Offer(trial=trial, parameters=parameters))
