"""Processes that stand still for longer than others wait for them: SIGSTOP, suspension."""

import signal
import subprocess
import time
from pathlib import Path

from tests.support.hand_made import aiperf
from tests.support.runs import (
    AT_RANDOM,
    agents,
    begin,
    count_epochs,
    history,
    nothing_is_left,
    wait_for,
    wait_for_epochs,
)

SILENCE = ("--set", "run.replica_silence=3s", *AT_RANDOM)


def end(process: subprocess.Popen[str], output: Path) -> str:
    """End a run that has shown enough; what it has said."""
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert aiperf("verify", output).returncode == 0
    nothing_is_left(output)
    return err


def test_a_primary_that_was_stopped_takes_no_replica_for_silent(tmp_path: Path) -> None:
    output = tmp_path / "run"
    with begin(output, "--replicas", 2, "--duration", "10m", *SILENCE) as process:
        wait_for_epochs(output, 2)
        process.send_signal(signal.SIGSTOP)
        time.sleep(7)  # more than the silence, and than a primary is late without saying so
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: '"primary_paused"' in history(output))
        wait_for_epochs(output, count_epochs(output) + 4)
        err = end(process, output)
    assert '"replica_lost"' not in history(output)
    assert "WARNING: the primary stood still for" in err
    assert "WARNING: the primary stood still for" in (output / "logs" / "primary.log").read_text()


def test_an_agent_that_was_stopped_fails_no_trial(tmp_path: Path) -> None:
    output = tmp_path / "run"
    with begin(output, "--duration", "10m", "--set", "replica.trial_silence=2s", *AT_RANDOM) as process:
        wait_for_epochs(output, 1)
        (agent,) = agents(output)
        agent.send_signal(signal.SIGSTOP)
        time.sleep(4)  # more than the silence
        agent.send_signal(signal.SIGCONT)
        wait_for_epochs(output, count_epochs(output) + 4)
        end(process, output)
    assert '"trial_failed"' not in history(output)
    assert '"replica_lost"' not in history(output)


def test_an_agent_that_stays_stopped_is_lost_and_started_again(tmp_path: Path) -> None:
    output = tmp_path / "run"
    with begin(output, "--replicas", 2, "--duration", "10m", *SILENCE) as process:
        wait_for_epochs(output, 2)
        (agent,) = agents(output, 1)
        agent.send_signal(signal.SIGSTOP)
        wait_for(lambda: '"replica_lost"' in history(output))
        wait_for((output / "history" / "replica-0001-2.jsonl").exists)
        err = end(process, output)
    assert "replica 1 LOST: the replica has given no sign of life for 3 s" in err
