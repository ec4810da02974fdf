"""Runs that lose their terminal, that never had one, and their orderly end from elsewhere."""

import contextlib
import json
import os
import pty
import selectors
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from aiperf.records.reading import read_ledger
from aiperf.run_directory.paths import RunPaths
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.processes import ask, family, lives
from tests.support.runs import (
    AT_RANDOM,
    count_epochs,
    history,
    nothing_is_left,
    report,
    wait_for,
    wait_for_another_epoch,
    wait_for_epochs,
)

VIEW_FAILED = "the live view has failed and is closed: OSError"

UNSEARCHED = (*SIMULATED, *AT_RANDOM, "--no-page")


class Terminal:
    """A run as the leader of a session with a terminal, which shows what the run prints."""

    def __init__(self, output: Path, *words: str) -> None:
        self._end, theirs = pty.openpty()
        program = [sys.executable, "-m", "aiperf", "run", *UNSEARCHED, "--output", str(output), *words]
        # setsid replaces itself: no fork of this process, which may have threads of a framework.
        self._run = subprocess.Popen(["setsid", "--ctty", *program], stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.child = self._run.pid
        self._closing, self._close = os.pipe()
        self._showing = threading.Thread(target=self._show)
        self._showing.start()

    def _show(self) -> None:
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._end, self._closing):
                selector.register(descriptor, selectors.EVENT_READ)
            while self._closing not in {key.fd for key, _ in selector.select()}:
                with contextlib.suppress(OSError):
                    os.read(self._end, 65536)

    def stop(self) -> None:
        """Take no output any more: Ctrl-S."""
        os.write(self._end, b"\x13")

    def close(self) -> None:
        """Close the terminal: the kernel hangs up the session."""
        os.write(self._close, b"x")
        self._showing.join()
        os.close(self._end)

    def exit_code(self) -> int:
        """Wait for the end of the run."""
        return self._run.wait()


def test_a_run_outlives_its_terminal_and_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    output = tmp_path / "run"
    terminal = Terminal(output, "--replicas", "2", "--duration", "30m")
    wait_for_epochs(output, 2)
    terminal.close()
    wait_for(lambda: VIEW_FAILED in (output / "logs" / "primary.log").read_text())
    for replica in range(2):
        wait_for_another_epoch(output, replica)
    assert aiperf("stop", output).returncode == 0
    assert terminal.exit_code() == 1
    found = report(output)
    assert found["ended"] == "interrupted"
    assert [detail["state"] for detail in found["replica_details"]] == ["finished", "finished"]
    shown = (output / "logs" / "run.out").read_text().splitlines()
    assert shown[-1].startswith("AIPerf: score=")
    assert aiperf("verify", output).returncode == 0
    nothing_is_left(output)


def test_a_hangup_of_every_process_ends_nothing(tmp_path: Path) -> None:
    output = tmp_path / "run"
    terminal = Terminal(output, "--duration", "30m")
    wait_for_epochs(output, 1)
    for process in family(terminal.child):
        ask(lambda process=process: process.send_signal(signal.SIGHUP), None)  # type: ignore[misc]
    terminal.close()
    wait_for_epochs(output, count_epochs(output) + 4)
    assert aiperf("stop", output).returncode == 0
    assert terminal.exit_code() == 1
    assert report(output)["ended"] == "interrupted"
    assert '"replica_lost"' not in history(output)
    assert '"trial_failed"' not in history(output)


def test_a_terminal_that_takes_no_output_does_not_stop_the_run(tmp_path: Path) -> None:
    output = tmp_path / "run"
    terminal = Terminal(output, "--duration", "30m")
    wait_for_epochs(output, 1)
    terminal.stop()
    wait_for_epochs(output, count_epochs(output) + 4)
    assert aiperf("stop", output).returncode == 0
    assert terminal.exit_code() == 1
    terminal.close()
    assert report(output)["ended"] == "interrupted"
    assert (output / "logs" / "run.out").read_text().splitlines()[-1].startswith("AIPerf: score=")


def test_a_detached_run_is_begun_watched_and_stopped_from_other_shells(tmp_path: Path) -> None:
    output = tmp_path / "a run"
    begun = aiperf("run", *UNSEARCHED, "--duration", "10m", "--output", output, "--detach", "--format", "json")
    assert begun.returncode == 0, begun.stderr
    facts = json.loads(begun.stdout)
    assert facts["run"] == str(output)
    assert facts["status"] == f"aiperf status '{output}'"
    primary = psutil.Process(facts["pid"])
    assert os.getsid(primary.pid) == primary.pid, "no terminal can end it"
    wait_for_epochs(output, 1)
    assert "running" in aiperf("status", output).stdout
    again = aiperf("resume", output, "--detach")
    assert (again.returncode, again.stdout) == (3, "")
    assert f"another primary has this run: process {primary.pid} on" in again.stderr
    assert lives(primary)
    stopped = aiperf("stop", output)
    assert (stopped.returncode, stopped.stdout) == (0, f"{output}: stopped\n"), stopped.stderr
    end = read_ledger(RunPaths(output)).run_ended
    assert end is not None
    assert end.body.reason == "interrupted"
    wait_for(lambda: not lives(primary))
    assert (output / "logs" / "run.out").read_text().splitlines()[-1].startswith("AIPerf: score=")
    nothing_is_left(output)
    once_more = aiperf("stop", output)
    assert once_more.returncode == 2
    assert "no primary has this run; there is nothing to stop" in once_more.stderr


def test_a_detached_run_can_be_resumed_detached(tmp_path: Path) -> None:
    output = tmp_path / "run"
    assert aiperf("run", *UNSEARCHED, "--duration", "10m", "--output", output, "--detach").returncode == 0
    wait_for_epochs(output, 1)
    assert json.loads(aiperf("stop", output, "--format", "json").stdout) == {"run": str(output), "stopped": True}
    resumed = aiperf("resume", output, "--detach")
    assert resumed.returncode == 0, resumed.stderr
    assert f"stop it:       aiperf stop {output}" in resumed.stdout.splitlines()
    assert '"run_resumed"' in history(output)
    assert aiperf("stop", output).returncode == 0
    nothing_is_left(output, 60)


def test_what_keeps_a_detached_run_from_starting_is_shown_with_its_exit_code(tmp_path: Path) -> None:
    output = tmp_path / "run"
    wrong = aiperf("run", *SIMULATED, "--replicas", "0", "--output", output, "--detach")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "run.replicas" in wrong.stderr
    assert not output.exists()
    ended = tmp_path / "ended"
    assert aiperf("run", *UNSEARCHED, "--duration", "1s", "--output", ended).returncode == 0
    late = aiperf("resume", ended, "--detach")
    assert (late.returncode, late.stdout) == (2, "")
    assert "the run has reached its deadline; there is nothing to resume" in late.stderr


def test_a_closed_pipe_does_not_cost_the_report(tmp_path: Path) -> None:
    output = tmp_path / "run"
    program = [sys.executable, "-m", "aiperf", "run", *UNSEARCHED, "--duration", "3s", "--output", str(output)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.readline()
        process.stdout.close()
        process.stderr.close()
        assert process.wait(500) == 0
    assert report(output)["ended"] == "deadline"
    assert (output / "logs" / "run.out").read_text().splitlines()[-1].startswith("AIPerf: score=")


def test_a_run_directory_whose_path_is_not_text_is_refused(tmp_path: Path) -> None:
    output = os.fsdecode(bytes(tmp_path) + b"/\xff")
    for words in (
        ("run", *SIMULATED, "--output", output),
        ("resume", output),
        ("run", *SIMULATED, "--output", output, "--detach"),
    ):
        result = aiperf(*words)
        assert result.returncode == 2
        assert "\\udcff' is not UTF-8, which the path of a run directory must be" in result.stderr
        assert "Traceback" not in result.stderr
    assert not Path(output).exists()
