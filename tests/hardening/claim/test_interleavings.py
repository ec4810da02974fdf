"""All orders of the file operations of three takers, with deaths between any two of them."""

import secrets
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aiperf.errors import RunHeldError
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.holder import Holder, Machine
from tests.hardening.claim.disks import FakeMachine, File, Memory, MemoryDisk
from tests.hardening.claim.stage import Stage, StageClock, Taker

FOLDER = Path("claims")
TAKERS = 3
BEFORE = {
    "no claim": {},
    "a dead holder": {"000001.json": Holder(token="old", pid=7, started_ticks=1)},
    "a released claim": {"000004.json": Holder(token="old", pid=7, started_ticks=1, released=True)},
}

Move = tuple[int, bool]
"""A taker, and whether it dies in place of its next step."""


@pytest.fixture(autouse=True)
def names_for_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal orders give equal files."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: threading.current_thread().name)


@dataclass
class Explored:
    """All states that were reached."""

    mortal: int | None
    states: set[object] = field(default_factory=set)
    plays: int = 0
    successes: set[int] = field(default_factory=set)
    """Numbers of takers that got the run, over all orders."""


class Play:
    """One order of steps: given moves first, then the first taker that can act."""

    def __init__(self, before: dict[str, Holder], lies: bool, old_names: int) -> None:
        self.stage, self.memory = Stage(), Memory()
        boot = Machine().boot
        for name, holder in before.items():
            found = Holder(
                token=holder.token, boot=boot, namespaces="0", pid=holder.pid, started_ticks=1, released=holder.released
            )
            self.memory.files[name] = File(found.encode())
        self._lies, self._old_names = lies, old_names
        self.stage.takers += [Taker(number, self._take) for number in range(TAKERS)]
        for taker in self.stage.takers:
            taker.start()

    def _claim(self, taker: Taker) -> Claim:
        disk = MemoryDisk(self.memory, taker, self._lies, self._old_names)
        return Claim.acquire(FOLDER, StageClock(self.stage, taker), disk, FakeMachine(self.stage, taker))

    def _take(self, taker: Taker) -> None:
        """Taker 0 gives the run up at the end, 1 dies with it, 2 keeps it."""
        try:
            claim = self._claim(taker)
        except RunHeldError:
            return
        self.stage.hold(taker)
        claim.touch()
        assert claim.lost is None
        if taker.number == 0:
            taker.holds = False
            claim.release()
        elif taker.number == 2:
            while True:
                taker.seen.append("keeps")
                taker.stop_here()

    def key(self) -> object:
        """What decides everything that can still happen."""
        return self.memory.snapshot(), tuple((t.alive, t.holds, tuple(t.seen)) for t in self.stage.takers)

    def can_move(self) -> list[int]:
        return [t.number for t in self.stage.takers if t.alive and t.seen[-1:] != ["keeps"]]

    def move(self, number: int, dies: bool) -> None:
        taker = self.stage.takers[number]
        if dies:
            taker.kill()
        else:
            self.stage.go_on(taker)

    def finish(self) -> None:
        """Afterwards the run can be had if and only if nobody who lives has it."""
        held = any(taker.holds for taker in self.stage.takers)
        last = Taker(TAKERS, lambda _: None)
        try:
            Claim.acquire(FOLDER, StageClock(self.stage, last), MemoryDisk(self.memory), FakeMachine(self.stage, None))
        except RunHeldError:
            assert held
        else:
            assert not held

    def leave(self) -> None:
        """End the threads."""
        for taker in self.stage.takers:
            if taker.alive:
                taker.kill()


def explore(before: dict[str, Holder], mortal: int | None, lies: bool = False, old_names: int = 0) -> Explored:
    """Play every order once, and go on only from states that were not reached before."""
    found, todo = Explored(mortal), [list[Move]()]
    while todo:
        play, moves = Play(before, lies, old_names), todo.pop()
        found.plays += 1
        for move in moves:
            play.move(*move)
        while choices := play.can_move():
            if (key := play.key()) in found.states:
                break
            found.states.add(key)
            options = [(number, False) for number in choices]
            options += [(number, True) for number in choices if number == mortal]
            todo += [[*moves, option] for option in options[1:]]
            moves = [*moves, options[0]]
            play.move(*options[0])
        else:
            play.finish()
        play.leave()
        assert play.stage.doubles == 0, moves
        found.successes |= {taker.number for taker in play.stage.takers if taker.got}
    return found


@pytest.mark.parametrize(("name", "mortal"), [("no claim", None), ("a dead holder", 2), ("a released claim", None)])
def test_one_of_three_takers_has_the_run_whatever_the_order(name: str, mortal: int | None) -> None:
    found = explore(BEFORE[name], mortal)
    assert found.successes == set(range(TAKERS))
    assert len(found.states) > 500


@pytest.mark.parametrize(("lies", "old_names"), [(False, 1), (True, 2)])
def test_nor_if_the_file_system_reports_failures_or_shows_an_old_folder(lies: bool, old_names: int) -> None:
    assert explore(BEFORE["a dead holder"], None, lies, old_names).successes == set(range(TAKERS))


def test_the_search_finds_a_claim_that_two_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same search over takers that remove the dead claim and then create theirs."""

    def careless(self: Claim, number: int) -> bool:
        path = FOLDER / f"{number - 1:06d}.json"
        if self._disk.read(path) is not None:
            self._disk.replace(path, FOLDER / f".{self._token}.tmp")
        self._disk.write(FOLDER / f"{number:06d}.{self._token}.json", b"")
        self.number = number
        return True

    monkeypatch.setattr(Claim, "_publish", careless)
    monkeypatch.setattr(Claim, "touch", lambda _: None)
    with pytest.raises(AssertionError):
        explore(BEFORE["a dead holder"], None)
