"""The handle on the process that reads runs: errors are answers; it is replaced when it dies."""

import asyncio
from pathlib import Path

import psutil

from dashboard.rendering import Worker
from dashboard.work import Answer, Task
from tests.support.hand_made import HandMadeRun
from tests.support.processes import all_end, command, lives


def workers() -> list[psutil.Process]:
    """Those of this process, which may have other children: servers of other tests."""
    return [child for child in psutil.Process().children() if "dashboard.worker" in command(child) and lives(child)]


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(100).end(100)
    answers: list[Answer] = []

    async def ask() -> None:
        worker = Worker()
        missing = await worker.ask(Task(run=tmp_path / "none"))
        assert "is not a directory" in missing.error
        (process,) = workers()
        process.suspend()
        asked = asyncio.ensure_future(worker.ask(Task(run=run.paths.root)))
        await asyncio.sleep(0)
        process.kill()
        answers.extend([await asked, await worker.ask(Task(run=run.paths.root))])
        (process,) = workers()
        await worker.stop()
        assert all_end([process])

    asyncio.run(ask())
    assert "ended with -9" in answers[0].error
    assert answers[1].status is not None
    assert answers[1].status.state == "ended"
