"""The suite as an agent starts it: once for each node, and whatever fails costs a warning."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from aiperf.config.settings import load_config
from aiperf.records.chain import hash_of
from aiperf.run_directory.micro_results import decoded_node
from aiperf.run_directory.paths import RunPaths
from replica.measure.micro.node_job import MicroReport, NodeJob
from tests.support.nodes.measured import ROWS
from tests.support.runs import wait_for

RESULTS = json.dumps([row.model_dump(by_alias=True) for row in ROWS])


@dataclass(frozen=True, slots=True)
class ScriptedJob(NodeJob):
    """A job whose suite is another program."""

    program: str = f"print({RESULTS!r})"

    def command(self) -> tuple[str, ...]:
        return sys.executable, "-c", self.program


def job(root: Path, program: str, replica: int = 0, limit_s: float = 300.0) -> ScriptedJob:
    config = load_config(overrides={"run.dataset": "digits", "micro.suite": "quick", "micro.time_limit": limit_s})
    return ScriptedJob(config, RunPaths(root), replica, "n1", "mixed_bfloat16", {"SEEN": "1"}, program)


def measured(root: Path, program: str, replica: int = 0) -> MicroReport:
    return asyncio.run(job(root, program, replica).measure())


def options(words: Sequence[str]) -> list[str]:
    return list(words[words.index("replica.measure.micro") + 1 :])


def test_the_suite_measures_what_the_run_trains_with(tmp_path: Path) -> None:
    settings = {"training.framework": "jax", "micro.operators": ["conv"]}
    config = load_config(overrides={"run.dataset": "digits", "micro.suite": "quick", **settings})
    own = NodeJob(config, RunPaths(tmp_path), 0, "n1", "mixed_bfloat16", {})
    assert options(own.command()) == [
        "--stack",
        "jax",
        "--precision",
        "bfloat16",
        "--operators",
        "conv",
        "--quick",
        "--format",
        "json",
    ]
    config = load_config(overrides={"run.dataset": "digits", "micro.suite": "full", "micro.stack": "native"})
    own = NodeJob(config, RunPaths(tmp_path), 0, "n1", "float32", {})
    assert options(own.command()) == [
        "--stack",
        "native",
        "--precision",
        "float32",
        "--operators",
        "conv,pool,fc",
        "--format",
        "json",
    ]


def test_one_replica_measures_a_node_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    program = (
        f"import os, sys; open({str(count)!r}, 'a').write(os.environ['SEEN']); "
        f"print('aiperf: tensorflow: one pass is odd', file=sys.stderr); print('noise', file=sys.stderr); "
        f"print({RESULTS!r})"
    )
    first = measured(tmp_path, program)
    file = tmp_path / "micro" / "n1.json"
    assert first == MicroReport(digest=hash_of(file.read_bytes()))
    result = decoded_node(file.read_bytes(), str(file))
    assert result.results == ROWS
    assert (result.replica, result.precision, result.problems) == (0, "bfloat16", ("tensorflow: one pass is odd",))
    # Another replica of the node, and the same one in a resumed run.
    assert measured(tmp_path, program, replica=1) == measured(tmp_path, program) == MicroReport()
    assert count.read_text() == "1"


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (
            "import sys; print('aiperf: stack torch: torch is not installed', file=sys.stderr); sys.exit(3)",
            "stack torch: torch is not installed; the suite ended: exit code 3",
        ),
        ("import os; os.kill(os.getpid(), 9)", "the suite ended: killed by SIGKILL"),
        ("print('[]')", "no results"),
        ("print('no JSON')", "JSONDecodeError: "),
        ("print('[{}]')", "ValidationError: "),
    ],
    ids=["a stack that is not installed", "killed", "nothing", "no JSON", "other JSON"],
)
def test_a_suite_that_fails_is_reported_and_not_repeated(tmp_path: Path, program: str, problem: str) -> None:
    found = measured(tmp_path, program)
    assert found.problem is not None
    assert found.problem.startswith(problem)
    assert decoded_node((tmp_path / "micro" / "n1.json").read_bytes(), "n1.json").results == ()
    assert measured(tmp_path, f"print({RESULTS!r})") == MicroReport()


def test_a_suite_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    program = f"import time; time.sleep(600)  # {tmp_path}"
    found = asyncio.run(job(tmp_path, program, limit_s=1.0).measure())
    assert found.problem == "the suite took longer than micro.time_limit = 1 s"
    # Another test of this process may have left a child that has ended.
    living = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    assert [process for process in living if program in process.cmdline()] == []


def test_a_run_that_ends_meanwhile_ends_the_suite(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    async def scenario() -> None:
        task = asyncio.create_task(job(tmp_path, program).measure())
        while not (pid.exists() and pid.read_text()):
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    wait_for(lambda: not psutil.pid_exists(int(pid.read_text())))
