"""Rounds of takers on real files, with delays, deaths and clocks that step, in virtual time.

Every file operation takes 0 to 2 s twice, before and after it is done, and any taker may act in
between. Takers are processes of one machine, of several, or of PID namespaces.
"""

import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from aiperf.errors import RunHeldError
from aiperf.run_directory.claim import TOUCH_INTERVAL_S, Claim
from aiperf.run_directory.disk import Disk, Stamp
from aiperf.run_directory.holder import Holder, Machine
from tests.hardening.claim.disks import FakeMachine
from tests.hardening.claim.stage import Stage, StageClock, Taker

TAKERS = 8
MEMORY = "/dev/shm"
"""Files that need not wait for a disk, where there is such a place."""

LONGEST_S = 2.0
"""Most that an operation takes, before it is done and after."""

T = TypeVar("T")


class SlowDisk(Disk):
    """The real operations, each late and its answer, too; times of files are virtual."""

    def __init__(self, stage: Stage, taker: Taker, chance: random.Random, longest_s: float) -> None:
        self._stage, self._taker, self._chance, self._longest_s = stage, taker, chance, longest_s

    def _slowly(self, operation: Callable[[], T]) -> T:
        self._stage.wait(self._taker, self._chance.uniform(0, self._longest_s))
        try:
            return operation()
        finally:
            self._stage.wait(self._taker, self._chance.uniform(0, self._longest_s))

    def names(self, folder: Path) -> list[str]:
        return self._slowly(partial(super().names, folder))

    def read(self, path: Path) -> tuple[bytes, Stamp] | None:
        return self._slowly(partial(super().read, path))

    def write(self, path: Path, data: bytes) -> None:
        self._slowly(partial(super().write, path, data))

    def link(self, path: Path, target: Path) -> None:
        self._slowly(partial(super().link, path, target))

    def replace(self, path: Path, target: Path) -> None:
        self._slowly(partial(super().replace, path, target))

    def touch(self, path: Path) -> None:
        now_ns = self._stage.now_ms * 1_000_000 + 1
        self._slowly(partial(os.utime, path, ns=(now_ns, now_ns)))


@dataclass
class Tally:
    """The outcome of some rounds."""

    rounds: int = 0
    holders: int = 0
    deaths: int = 0
    doubles: int = 0
    stuck: int = 0
    """Rounds after which nobody could have the run, though nobody had it."""

    def __str__(self) -> str:
        return (
            f"claims: rounds={self.rounds} holders={self.holders} deaths={self.deaths} "
            f"doubles={self.doubles} stuck={self.stuck}"
        )


class Round:
    """One round, drawn from a seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._chance = chance = random.Random(seed)
        self._folder = folder
        self._longest_s = chance.choice((0.01, 0.1, LONGEST_S))
        self._places = chance.choice((1, 2, TAKERS))
        """PID namespaces or machines."""
        self._stage = Stage(lambda most_ms: chance.randint(-most_ms, most_ms))
        self._stage.takers += [Taker(number, self._take) for number in range(TAKERS)]
        for taker in self._stage.takers:
            taker.waits_until_s = chance.uniform(0, 5)
        self._deaths = 0
        self._leave_something()

    def _leave_something(self) -> None:
        """What takers find: nothing, or the claim of one that died, ended or wrote half of it."""
        before = self._chance.choice(("nothing", "dead", "released", "half"))
        if before != "nothing":
            boot = Machine().boot
            holder = Holder(
                token="old", boot=boot, namespaces="0", pid=7, started_ticks=1, released=before == "released"
            )
            self._folder.mkdir(parents=True)
            data = holder.encode()
            (self._folder / "000001.json").write_bytes(data[: len(data) // 2] if before == "half" else data)

    def _claim(self, taker: Taker) -> Claim:
        disk = SlowDisk(self._stage, taker, self._chance, self._longest_s)
        machine = FakeMachine(self._stage, taker, taker.number % self._places)
        return Claim.acquire(self._folder, StageClock(self._stage, taker), disk, machine)

    def _take(self, taker: Taker) -> None:
        self._stage.wait(taker, 0)
        try:
            claim = self._claim(taker)
        except RunHeldError:
            return
        self._stage.hold(taker)
        left_s = self._chance.uniform(0, 60)
        while left_s > 0 and claim.lost is None:
            self._stage.wait(taker, min(left_s, TOUCH_INTERVAL_S))
            left_s -= TOUCH_INTERVAL_S
            claim.touch(TOUCH_INTERVAL_S / 2)
        taker.holds = False
        if self._chance.random() < 0.5:
            claim.release()
        else:
            self._deaths += 1  # as if by SIGKILL: the claim stays

    def play(self) -> Tally:
        """All takers, and one more when they have ended."""
        self._stage.play()
        holders, doubles = sum(taker.got for taker in self._stage.takers), self._stage.doubles
        last = Taker(TAKERS, self._take)
        last.waits_until_s = self._stage.now_s
        self._stage.takers.append(last)
        self._stage.play_rest(last)
        return Tally(1, holders, self._deaths, doubles, 1 - last.got)


def play(rounds: int, seed: int = 1) -> Tally:
    """Play rounds with the seeds from `seed` on."""
    total = Tally()
    for number in range(seed, seed + rounds):
        with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
            one = Round(number, Path(name) / "claims").play()
        total = Tally(*(getattr(total, field) + getattr(one, field) for field in Tally.__dataclass_fields__))
    return total
