"""An agent that the kernel has killed for want of memory: its launcher knows the cause."""

import asyncio
import signal
from pathlib import Path

import pytest

from primary.launchers import pipes

GROUPS = {
    "version 2": ("0::/job\n", "sys/fs/cgroup/job/memory.events", "low 0\noom 3\noom_kill {}\n"),
    "version 1": (
        "4:cpu:/job\n3:memory,hugetlb:/job\n",
        "sys/fs/cgroup/memory/job/memory.oom_control",
        "under_oom 0\noom_kill {}\n",
    ),
    "no limit": ("", "proc/vmstat", "nr_free_pages 7\noom_kill {}\n"),
}
"""The group of a process, the file with its counter, and what that says."""


class Machine:
    """A machine whose kernel has killed some processes."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        self.group, self._counter, self._text = GROUPS[kind]
        self.killed(2)

    def killed(self, processes: int) -> None:
        counter = self._folder / self._counter
        counter.parent.mkdir(parents=True, exist_ok=True)
        counter.write_text(self._text.format(processes))

    def describe(self, process: int) -> None:
        folder = self._folder / "proc" / str(process)
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(self.group)


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize(("killed", "number", "said"), [(3, 9, True), (2, 9, False), (3, 15, False)])
def test_an_agent_that_died_for_memory_says_so(
    kind: str, killed: int, number: int, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, kind)
    monkeypatch.setattr("aiperf.host.ROOT", tmp_path)

    async def end_of_an_agent() -> tuple[str, str]:
        process = await asyncio.create_subprocess_exec("sleep", "600")
        machine.describe(process.pid)
        agent = pipes.PipeProcess(process)
        machine.killed(killed)
        process.send_signal(number)
        return str(await agent.wait()), await agent.explain()

    end, cause = asyncio.run(end_of_an_agent())
    assert end == f"was killed by {signal.Signals(number).name}"
    assert cause.startswith("probably out of memory") == said
    assert said or cause == ""
