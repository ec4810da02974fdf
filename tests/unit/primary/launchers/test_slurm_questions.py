"""Questions to SLURM's controller about the ends of replicas: few at a time, none without need."""

import asyncio
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from primary.launchers import slurm
from primary.launchers.slurm import QUERIES_AT_ONCE, SlurmProcess, SlurmTask


class Controller:
    """Takes a while to answer, and counts the questions that are open at a time."""

    def __init__(self) -> None:
        self.asked = list[str]()
        self.open = self.most = 0

    async def ask(self, program: str, *_: str) -> str:
        self.asked.append(program)
        self.open += 1
        self.most = max(self.most, self.open)
        for _turn in range(100):
            await asyncio.sleep(0)
        self.open -= 1
        return "down" if program == "sinfo" else ""


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    found = Controller()
    monkeypatch.setattr(slurm, "_ask", found.ask)
    return found


def explained(program: str, replicas: int, tmp_path: Path) -> list[str]:
    async def scenario() -> list[str]:
        asking = asyncio.Semaphore(QUERIES_AT_ONCE)
        child = await asyncio.create_subprocess_exec(program, stdin=asyncio.subprocess.DEVNULL, cwd=tmp_path)
        await child.wait()
        tasks = [SlurmTask(f"r{number}", "7", (f"n{number}",)) for number in range(replicas)]
        lost = [SlurmProcess(child, task, SystemClock(), asking) for task in tasks]
        return await asyncio.gather(*(process.explain() for process in lost))

    return asyncio.run(scenario())


def test_a_mass_loss_asks_a_few_questions_at_a_time(controller: Controller, tmp_path: Path) -> None:
    found = explained("false", 50, tmp_path)
    assert found[49] == "SLURM node n49 is DOWN: a node failed"
    assert sorted(controller.asked) == ["sinfo"] * 50 + ["squeue"] * 50
    assert controller.most == QUERIES_AT_ONCE
