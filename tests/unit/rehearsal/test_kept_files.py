"""History files of a rehearsal, and the timer of waits one after the other."""

import asyncio
from pathlib import Path

import pytest

from aiperf.clock import AwakeWaits
from aiperf.storage.patience import PATIENCE
from rehearsal.virtual.files import BLOCK_BYTES, KeptFiles
from rehearsal.virtual.loop import VirtualLoop, run_virtually


def test_what_was_written_is_found_after_a_flush_a_block_and_the_end(tmp_path: Path) -> None:
    files, path = KeptFiles(), tmp_path / "records"
    file = files.create(path, tmp_path, tmp_path, PATIENCE)
    file.append(b"one\n")
    assert path.read_bytes() == b""
    files.flush()
    assert path.read_bytes() == b"one\n"
    file.append(b"x" * BLOCK_BYTES)
    assert path.stat().st_size == 4 + BLOCK_BYTES
    file.append(b"end\n")
    file.close()
    assert path.read_bytes().endswith(b"end\n")


def test_silence_counts_from_the_last_wait() -> None:
    async def scenario(loop: VirtualLoop) -> float:
        came: asyncio.Queue[int] = asyncio.Queue()
        waits = AwakeWaits(came.get, 60)
        for number in range(3):
            loop.call_later(25, came.put_nowait, number)
            assert await waits.next() == number
        with pytest.raises(TimeoutError):
            await waits.next()
        return loop.time()

    assert run_virtually(scenario) == pytest.approx(75 + 60)
