"""The sign of life: results end it, warnings interrupt it, and it outlives nothing."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

PROGRAM = """
import os, sys
from aiperf.cli import waiting
from aiperf.cli.lines import say, warn
waiting.FIRST_S, waiting.NEXT_S = 0.0, 0.05
def wait():
    sys.stdin.readline()
with waiting.waiting("report"):
"""

SIGN = r"\r\x1b\[Kaiperf report: "


class Terminal:
    """A terminal with a program that works."""

    def __init__(self, process: subprocess.Popen[bytes], number: int) -> None:
        self.process = process
        self.shown = ""
        self._number = number

    def show(self, pattern: str) -> re.Match[str]:
        """Wait until a pattern is shown after what was awaited before."""
        while (found := re.search(pattern, self.shown, re.DOTALL)) is None:
            assert self._read(), f"{pattern!r} is not in {self.shown!r}"
        self.shown = self.shown[found.end() :]
        return found

    def end(self) -> str:
        """All that is shown until every process has closed the terminal."""
        while self._read():
            pass
        return self.shown

    def go_on(self) -> None:
        """Let the program do what is next."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def _read(self) -> bytes:
        assert select.select([self._number], [], [], 240)[0], "something is shown, or the terminal closed"
        try:
            data = os.read(self._number, 65536)
        except OSError:  # the other end is closed
            return b""
        self.shown += data.decode()
        return data


def working(*lines: str) -> AbstractContextManager[Terminal]:
    """A verb with these lines of work."""
    return shown(PROGRAM + "".join(f"    {line}\n" for line in lines))


@contextmanager
def shown(program: str) -> Iterator[Terminal]:
    """A program on a terminal of its own."""
    ours, its = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=its, stderr=its) as process:
        os.close(its)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            os.close(ours)


def test_results_erase_it_and_nothing_is_drawn_after_them() -> None:
    with working("wait()", "say('a result')", "wait()") as terminal:
        terminal.show(f"{SIGN}working, 0 s")
        terminal.go_on()
        terminal.show(r"\r\x1b\[Ka result\r\n")
        terminal.go_on()
        assert terminal.end() == ""
    assert terminal.process.returncode == 0


def test_it_stays_while_what_an_open_console_is_to_print_is_worked_out() -> None:
    console = "console = importlib.import_module('aiperf.cli.console').open_console()"
    with working("import importlib", console, "wait()", "console.print('a table')", "wait()") as terminal:
        terminal.show(f"{SIGN}working, 0 s")
        terminal.show(f"{SIGN}working")
        terminal.go_on()
        terminal.show(r"\r\x1b\[Ka table\r\n")
        terminal.go_on()
        assert terminal.end() == ""


@pytest.mark.parametrize(
    "start", ["import aiperf_hpc; aiperf_hpc.main()", "runpy.run_module('aiperf', run_name='__main__')"]
)
def test_it_is_there_while_the_command_itself_is_still_imported(start: str) -> None:
    program = (
        "import importlib.abc, runpy, sys\n"
        "class Slow(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'aiperf.cli.command':\n"
        "            sys.stdin.readline()\n"
        "sys.meta_path.insert(0, Slow())\n"
        "sys.argv = ['aiperf', 'no-verb']\n"
    )
    with shown(program + start) as terminal:
        terminal.show(r"\r\x1b\[Kaiperf no-verb: working, \d+ s")
        terminal.go_on()
        terminal.show(r"\r\x1b\[Kaiperf: unknown verb 'no-verb'")
        assert "Traceback" not in terminal.end()


def test_it_makes_way_for_a_warning_and_comes_back_with_what_is_done() -> None:
    with working("wait()", "warn('a warning')", "wait()", "waiting.note('half of it')", "wait()") as terminal:
        terminal.show(f"{SIGN}working")
        terminal.go_on()
        terminal.show(r"\r\x1b\[Ka warning\r\n")
        terminal.show(f"{SIGN}working")
        terminal.go_on()
        terminal.show(f"{SIGN}half of it, ")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_a_verb_that_is_killed(number: signal.Signals) -> None:
    with working("wait()") as terminal:
        terminal.show(f"{SIGN}working")
        terminal.process.send_signal(number)
        terminal.end()


def test_a_copy_of_the_process_leaves_it_alone_and_has_none() -> None:
    copy = "[warn('of the copy'), os._exit(waiting._sign._drawn is not None)]"
    parent = "os.write(1, b'copied %d' % os.waitpid(copy, 0)[1])"
    with working(f"copy = os.fork() or {copy}", parent, "wait()") as terminal:
        terminal.show("of the copy\r\n")
        terminal.show("copied 0")
        terminal.show(f"{SIGN}working")


def test_a_machine_without_room_for_it_goes_without() -> None:
    with working("pass") as terminal:
        assert "Traceback" not in terminal.end()
    program = PROGRAM.replace("with waiting", "sys.executable = '/nowhere'\nwith waiting") + "    say('a result')\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("a result\n", "")
