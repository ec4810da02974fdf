"""A claim that is kept while its storage answers, refuses or hangs."""

import asyncio
import threading
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from aiperf.errors import RunHeldError
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.disk import Disk
from primary.background import keeper as module
from primary.background.keeper import ClaimKeeper
from tests.support.hand_made import ManualClock


class Hanging(Disk):
    """A file server that does not answer from some moment on."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Semaphore(0)

    def names(self, folder: Path) -> list[str]:
        self.asked.release()
        self.answers.wait()
        return super().names(folder)


def take_over(folder: Path) -> Claim:
    """A successor on a run whose holder it takes for dead."""
    path = max(folder.iterdir())
    path.write_bytes(path.read_bytes().replace(b'"released": false', b'"released": true'))
    return Claim.acquire(folder, ManualClock())


@pytest.mark.parametrize("background", [False, True])
def test_a_superseded_primary_hears_of_it_once(tmp_path: Path, background: bool) -> None:
    folder, heard = tmp_path / "claims", list[RunHeldError]()

    async def scenario() -> None:
        keeper = ClaimKeeper(Claim.acquire(folder, SystemClock()), heard.append)
        if background:
            keeper.in_background()
        assert keeper.look()
        assert await keeper.certain()
        take_over(folder)
        assert not await keeper.certain()
        assert not keeper.look()
        assert not await keeper.certain()

    asyncio.run(scenario())
    assert len(heard) == 1
    assert "another primary has taken this run over" in str(heard[0])


def test_storage_that_does_not_answer_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, heard = Hanging(), list[RunHeldError]()
    claim = Claim.acquire(tmp_path / "claims", SystemClock(), disk)

    async def scenario() -> None:
        keeper = ClaimKeeper(claim, heard.append)
        keeper.in_background()
        assert await keeper.certain()
        monkeypatch.setattr(module, "CERTAIN_WITHIN_S", 0.01)
        disk.answers.clear()
        while disk.asked.acquire(blocking=False):
            pass
        assert keeper.look()
        await asyncio.to_thread(disk.asked.acquire)  # a touch is inside the file server
        assert all(keeper.look() for _ in range(100)), "no further touch waits behind it"
        assert await keeper.certain(), "as with storage that refuses"
        take_over(tmp_path / "claims")
        disk.answers.set()
        while keeper.look():
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert len(heard) == 1


def test_an_error_that_nobody_foresaw_does_not_end_the_keeping(tmp_path: Path) -> None:
    claim = Claim.acquire(tmp_path / "claims", SystemClock())
    before, touched = claim.touch, list[float]()

    def touch(every_s: float = 0.0) -> None:
        touched.append(every_s)
        if len(touched) == 1:
            raise RuntimeError("odd")
        before(every_s)

    claim.touch = touch  # type: ignore[method-assign]

    async def scenario() -> None:
        keeper = ClaimKeeper(claim, print)
        keeper.in_background()
        assert await keeper.certain()
        assert await keeper.certain()

    asyncio.run(scenario())
    assert touched == [0.0, 0.0]
