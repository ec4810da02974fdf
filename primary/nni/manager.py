"""The manager of a run that NNI drives: one job for every trial that NNI has room for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiperf.messages import Job, Message, Started
from primary.managers.contract import EndReason
from primary.nni.messages import Clock, Closed, Offer, Value, Wanted


class NniManager:
    """Holds every replica back until NNI wants another trial; `send` passes messages to NNI's tuner.

    NNI shows a trial with the parameters that it is handed out with, so a job is offered when its architecture and
    hyperparameters are known: its replica is at work then.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._room = asyncio.Semaphore(0)
        self._silent: dict[int, dict[str, Value | None]] = {}
        """Jobs that NNI was not told of yet, by trial."""

    def want(self, wanted: Wanted) -> None:
        """NNI has room for more trials."""
        for _ in range(wanted.jobs):
            self._room.release()

    def released(self, left_s: float) -> None:
        """NNI's experiment lasts as long as the run."""
        self._send(Clock(left_s=left_s))

    async def turn(self, replica: int) -> None:
        """Wait until NNI has room for another trial; who waited longest comes first."""
        await self._room.acquire()

    def issued(self, replica: int, job: Job) -> None:
        """Remember what is known of the job already."""
        known = job.model_dump(include={"trial", "round", "point", "resumes"})
        self._silent[job.trial] = {"replica": replica, **known}

    def started(self, started: Started) -> None:
        """Offer the job to NNI."""
        facts = started.model_dump(exclude={"type", "trial", "hyperparameters"})
        self._offer(started.trial, {**facts, **started.hyperparameters})

    def over(self, trial: int) -> None:
        """Offer a job that failed before it started, too: NNI shows failures as well."""
        self._offer(trial, {})

    def closed(self, reason: EndReason) -> None:
        """No more jobs."""
        self._send(Closed(reason=reason))

    def _offer(self, trial: int, found: dict[str, Value | None]) -> None:
        known = self._silent.pop(trial, None)
        if known is not None:
            parameters = {name: value for name, value in {**known, **found}.items() if value is not None}
            self._send(Offer(trial=trial, parameters=parameters))
