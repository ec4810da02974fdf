"""Ranks die first when memory is short, and the cause is reported."""

import asyncio
import subprocess
from pathlib import Path
from typing import cast

import pytest

from aiperf.errors import TrialFailedError
from aiperf.machine import oom_order
from aiperf.processes import MemoryKills
from aiperf.wire.messages import TrainRequest
from replica.agent.trial import trainer_process
from replica.agent.trial.trainer_process import RankSocket, TrainerProcess


def test_a_process_is_made_the_first_to_die() -> None:
    with subprocess.Popen(["sleep", "infinity"]) as child:
        oom_order.prefer_oom_kill(child.pid)
        assert Path(f"/proc/{child.pid}/oom_score_adj").read_text() == f"{oom_order.RANKS_FIRST}\n"
        child.kill()


@pytest.mark.parametrize(("after", "said"), [(1, True), (0, False)])
def test_a_rank_that_was_killed_for_memory_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, said: bool
) -> None:
    def kills() -> MemoryKills:
        counter = tmp_path / "proc/vmstat"
        counter.parent.mkdir()
        counter.write_text("oom_kill 0\n")
        found = MemoryKills()
        counter.write_text(f"oom_kill {after}\n")
        return found

    monkeypatch.setattr("aiperf.host.ROOT", tmp_path)
    monkeypatch.setattr(trainer_process, "MemoryKills", kills)

    async def scenario() -> str:
        socket = RankSocket(cast(TrainRequest, None))
        await socket.listen()
        process = await asyncio.create_subprocess_exec("sh", "-c", "kill -KILL $$", start_new_session=True)
        trainer = TrainerProcess(process, socket, tmp_path / "log", several=False)
        with pytest.raises(TrialFailedError) as failed:
            async for _ in trainer.messages(60):
                pass
        return failed.value.reason

    reason = asyncio.run(scenario())
    assert "killed by SIGKILL" in reason
    assert ("out of memory" in reason) == said
