"""Virtual time, and storage and processes in it."""

import asyncio
import gc

import pytest

from aiperf.wire.messages import Alive
from primary.launchers.contract import Exit
from rehearsal.virtual.clock import T0_MS, VirtualClock
from rehearsal.virtual.loop import DeadlockError, VirtualLoop, run_virtually
from rehearsal.virtual.processes import Send, VirtualProcess
from rehearsal.virtual.storage import SharedStorage, VirtualWrites


def test_hours_pass_at_once() -> None:
    async def main(loop: VirtualLoop) -> float:
        await asyncio.gather(asyncio.sleep(7200), asyncio.sleep(3600))
        return loop.time()

    assert run_virtually(main) == pytest.approx(7200)


def test_a_deadlock_is_found() -> None:
    async def main(loop: VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="waits for another"):
        run_virtually(main)


def test_work_of_a_thread_takes_the_time_that_it_owes() -> None:
    async def main(loop: VirtualLoop) -> tuple[float, float]:
        def work() -> float:
            loop.owe(30)
            return loop.time()

        return await asyncio.to_thread(work), loop.time()

    assert run_virtually(main) == (0, 30)


def test_a_clock_that_gains_counts_more_milliseconds() -> None:
    async def main(loop: VirtualLoop) -> tuple[int, int]:
        clock = VirtualClock(loop, offset_ms=500, drift_ppm=100.0)
        await clock.sleep(10_000)
        return clock.monotonic_ms(), clock.utc_ms()

    assert run_virtually(main) == (10_001_000, T0_MS + 500 + 10_001_000)


def test_writes_wait_for_the_end_of_an_outage_and_keep_their_order() -> None:
    heard: list[str] = []
    done: list[tuple[str, float]] = []

    async def main(loop: VirtualLoop) -> None:
        storage = SharedStorage(loop, write_s=1.0)
        writes = VirtualWrites(storage, heard.append)
        for name in "ab":
            writes.put(lambda name=name: done.append((name, loop.time())))  # type: ignore[misc]
        writes.after(lambda: done.append(("after", loop.time())))
        storage.refuse(10, "No space left on device")
        await asyncio.sleep(60)

    run_virtually(main)
    assert done == [("a", 10), ("b", 11), ("after", 11)]
    assert heard == ["No space left on device", ""]


def test_what_a_killed_process_had_not_written_is_lost() -> None:
    done: list[str] = []

    async def main(loop: VirtualLoop) -> None:
        writes = VirtualWrites(SharedStorage(loop, write_s=1.0), lambda _: None)
        writes.put(lambda: done.append("first"))
        writes.put(lambda: done.append("second"))
        writes.after(lambda: done.append("after"))
        await asyncio.sleep(1.5)
        writes.kill()
        writes.put(lambda: done.append("third"))
        await asyncio.sleep(10)
        assert writes.drain(1.0)

    run_virtually(main)
    assert done == ["first"]


async def answer(reader: asyncio.StreamReader, send: Send) -> None:
    try:
        while await reader.readline():
            send(Alive())
    finally:
        send(Alive())


def test_a_killed_process_says_nothing_more_and_a_stopped_one_does() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[bytes], list[Exit]]:
        killed, stopped = VirtualProcess(answer), VirtualProcess(answer)
        for process in (killed, stopped):
            await process.send(b"\n")
            await process.receive()
        killed.kill()
        ends = [await killed.wait(), await stopped.cancel(5.0)]
        return [await killed.receive(), await stopped.receive(), await stopped.receive()], ends

    lines, ends = run_virtually(main)
    assert [bool(line) for line in lines] == [False, True, False]
    assert ends == [Exit(-9), Exit(0)]


def test_messages_are_lost_once_the_primary_is_gone() -> None:
    async def main(loop: VirtualLoop) -> bytes:
        process = VirtualProcess(answer)
        process.sever()
        await process.ended
        return await process.receive()

    assert run_virtually(main) == b""


def test_ctrl_c_in_a_task_ends_all_that_wait_for_it_without_a_word(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    ended = list[str]()

    async def interrupted() -> None:
        await asyncio.sleep(1)
        raise KeyboardInterrupt

    async def waits(name: str, task: asyncio.Task[None]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await asyncio.gather(task)  # which raises it once more
            finally:
                ended.append(name)
                asyncio.get_running_loop().set_exception_handler(None)  # as a trial's end does

    async def main(loop: VirtualLoop) -> None:
        first = loop.create_task(interrupted())
        others = [loop.create_task(waits(name, first)) for name in "abc"]
        await asyncio.wait([first, *others])

    with pytest.raises(KeyboardInterrupt):
        run_virtually(main)
    gc.collect()
    assert sorted(ended) == ["a", "b", "c"]
    assert caplog.text == ""
    assert capfd.readouterr() == ("", "")
