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


def silence(seconds: int) -> tuple[str, ...]:
    """Options of a run that gives a replica up after these seconds."""
    return ("--set", f"run.replica_silence={seconds}s", *AT_RANDOM)


def end(process: subprocess.Popen[str], output: Path) -> str:
    """End a run that has shown enough; what it has said."""
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert aiperf("verify", output).returncode == 0
    nothing_is_left(output)
    return err


def test_a_primary_that_was_stopped_takes_no_replica_for_silent(tmp_path: Path) -> None:
    for silence_s in (3, 12, 48):  # a replica on a busy machine may be silent for longer than 3 s
        output = tmp_path / str(silence_s)
        with begin(output, "--replicas", 2, "--duration", "30m", *silence(silence_s)) as process:
            wait_for_epochs(output, 2)
            process.send_signal(signal.SIGSTOP)
            time.sleep(silence_s + 4)  # more than the silence, and than a primary is late without saying so
            process.send_signal(signal.SIGCONT)
            wait_for(lambda output=output: '"primary_paused"' in history(output))  # type: ignore[misc]
            wait_for_epochs(output, count_epochs(output) + 4)
            err = end(process, output)
        if '"replica_lost"' not in history(output):
            break
    assert '"replica_lost"' not in history(output)
    assert "WARNING: the primary stood still for" in err
    assert "WARNING: the primary stood still for" in (output / "logs" / "primary.log").read_text()


def test_an_agent_that_was_stopped_fails_no_trial(tmp_path: Path) -> None:
    for silence_s in (2, 10, 40):  # a busy machine may take longer than 2 s to start a trainer
        output = tmp_path / str(silence_s)
        with begin(output, "--duration", "30m", "--set", f"replica.trial_silence={silence_s}s", *AT_RANDOM) as process:
            wait_for_epochs(output, 1)
            (agent,) = agents(output)
            agent.send_signal(signal.SIGSTOP)
            time.sleep(silence_s + 2)  # more than the silence
            agent.send_signal(signal.SIGCONT)
            wait_for_epochs(output, count_epochs(output) + 4)
            end(process, output)
        if '"trial_failed"' not in history(output):
            break
    assert '"trial_failed"' not in history(output)
    assert '"replica_lost"' not in history(output)


def test_an_agent_that_stays_stopped_is_lost_and_started_again(tmp_path: Path) -> None:
    for silence_s in (3, 12, 48):  # a busy machine may lose a replica that nobody has stopped
        output = tmp_path / str(silence_s)
        with begin(output, "--replicas", 2, "--duration", "30m", *silence(silence_s)) as process:
            wait_for_epochs(output, 2)
            stopped = agents(output, 1)
            for agent in stopped:
                agent.send_signal(signal.SIGSTOP)
            before = '"replica_lost"' in history(output)
            wait_for(lambda output=output: '"replica_lost"' in history(output))  # type: ignore[misc]
            wait_for((output / "history" / "replica-0001-2.jsonl").exists)
            err = end(process, output)
        if len(stopped) == 1 and not before:
            break
    assert f"replica 1 LOST: the replica has given no sign of life for {silence_s} s" in err
