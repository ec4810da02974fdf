"""A trainer as the agent sees it: a group of ranks with one pipe, of which only the trial depends."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

from aiperf.config import RunConfig
from aiperf.errors import MessageError, TrialFailedError
from aiperf.messages import FromTrainer, TrainRequest, decode_from_trainer, encode
from aiperf.processes import describe_exit, end_group, last_lines, spawn
from replica.trainer.starters import STARTERS, RankRequest

END_GRACE_S = 5.0
"""How long ranks may take to end when told to."""


def trainer_command(config: RunConfig) -> tuple[str, ...]:
    """The command line of one rank."""
    if config.training.trainer == "simulated":
        return (sys.executable, "-m", "replica.trainer.simulated", config.simulated.model_dump_json())
    return (sys.executable, "-m", "replica.trainer")


class TrainerProcess:
    """The ranks of one training, in a process group of their own."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, config: RunConfig, request: TrainRequest, log: Path) -> Self:
        """Start the ranks and hand them the request. Raises TrialFailedError ("start")."""
        command = STARTERS["none"](RankRequest(trainer_command(config)))
        try:
            process = await spawn(command, log)
        except OSError as error:
            raise TrialFailedError("start", f"{command[0]}: {error}") from error
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):  # a dead trainer is seen by its exit
            process.stdin.write(encode(request))
            await process.stdin.drain()
        return cls(process, log)

    @property
    def pid(self) -> int:
        """Process id of rank 0, which is the process group of all ranks."""
        return self._process.pid

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        """What the trainer tells, until its pipe ends.

        Raises TrialFailedError where it is silent for `silence_s` ("hang"), says what is no message
        ("protocol"), or dies ("crash"), with the end of its log.
        """
        assert self._process.stdout is not None
        while True:
            try:
                line = await asyncio.wait_for(self._process.stdout.readline(), silence_s)
                if not line:
                    break
                yield decode_from_trainer(line)
            except TimeoutError:
                raise TrialFailedError("hang", f"no report for {silence_s:.0f} s; {self._tail()}") from None
            except (MessageError, ValueError) as error:
                raise TrialFailedError("protocol", f"{error}; {self._tail()}") from None
        code = await self._process.wait()
        if code != 0:
            raise TrialFailedError("crash", f"the trainer ended with {describe_exit(code)}; {self._tail()}")

    async def end(self) -> None:
        """End all ranks, if need be by force."""
        await end_group(self._process, END_GRACE_S)

    def _tail(self) -> str:
        return f"end of {self._log}: {last_lines(self._log) or '(empty)'}"
