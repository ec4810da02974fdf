"""Standard output and error of a run whose terminal, or whose reader, may go away."""

import contextlib
import os
import select
import signal
from pathlib import Path

TAKES_OUTPUT_MS = 5000
"""Milliseconds for a full terminal or pipe to take more."""

OUTPUTS = (1, 2)
"""The descriptors of standard output and error."""


def ignore_hangups() -> None:
    """Let the run outlive its terminal and its login, together with everything that it starts.

    Children inherit this, as those of `nohup` do: some, such as the ProxyCommand of an ssh
    connection, are in the group of processes that the kernel hangs up.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def replace_dead_outputs(file: Path) -> None:
    """Append later output to `file` if its terminal or pipe is gone.

    An output that is alive stays. If the file cannot be written either, the output is dropped.
    """
    for number in OUTPUTS:
        if _is_dead(number):
            redirect(number, file)


def redirect(number: int, file: Path) -> None:
    """Make a descriptor append to `file`, or go nowhere if the file cannot be opened."""
    try:
        target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:
        target = os.open(os.devnull, os.O_WRONLY)
    os.dup2(target, number)
    os.close(target)


def _is_dead(number: int) -> bool:
    """True for a terminal that was hung up or takes no output, and for a pipe without a reader."""
    poll = select.poll()
    with contextlib.suppress(OSError):
        poll.register(number, select.POLLOUT)
        # A pipe without a reader adds POLLERR, a terminal that was hung up POLLHUP, and a full one
        # reports nothing in time (poll(2)).
        return [found for _, found in poll.poll(TAKES_OUTPUT_MS)] != [select.POLLOUT]
    return True
