"""The signals by which schedulers warn, and the reaction of every process of a run to them.

`WARNINGS` are blocked from the start of a process on, and with them in everything that it starts:
otherwise they would kill what has not come to handle them. A process that ends a run in order heeds
them; ranks leave them to their agent. The relay (`primary.launchers.relays.remote`), which runs
without this program, does the same. A child process asks for a signal at its parent's death.
"""

import atexit
import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

NOTED = signal.SIGUSR1
"""Grid Engine warns of a suspension by it, too: it is noted, and ends nothing."""

ENDING = (signal.SIGUSR2, signal.SIGXCPU)
"""Warnings that the time is over: they end a run as SIGTERM does."""

WARNINGS = (NOTED, *ENDING)

_PR_SET_PDEATHSIG = 1

PARENT = "AIPERF_PARENT"
"""Variable with the process that started this one itself, of those that do not outlive it."""


def hold_warnings() -> None:
    """Block the warnings until this process heeds them: early, before another thread begins."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WARNINGS)


def heed(end: Callable[[], None], *also: signal.Signals, note: Callable[[str], None] = lambda text: None) -> None:
    """Call `end` in the running loop at SIGTERM, a warning of the end, and each signal of `also`.

    `note` gets a line about any signal that came.
    """
    from asyncio import get_running_loop  # noqa: PLC0415 - takes as long as all else that a command starts with

    loop = get_running_loop()

    def called(number: int) -> None:
        note(_described(number))
        if number != NOTED:
            end()

    for number in (signal.SIGTERM, *also):
        loop.add_signal_handler(number, called, number)
    _receive(lambda number: loop.call_soon_threadsafe(called, number))


@contextlib.contextmanager
def heeded(end: Callable[[], None], *also: signal.Signals) -> Iterator[None]:
    """Heed warnings in this block of a program without a loop; the main thread calls `end`."""
    before = {number: signal.signal(number, lambda *_: end()) for number in (signal.SIGTERM, *also)}
    _receive(lambda number: None if number == NOTED else end())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _receive(lambda number: None)


def _receive(called: Callable[[int], object]) -> None:
    """Make Python call this at every warning until the end of the process.

    Handlers of a loop would go with it, and the last warning would kill while the end is written.
    """

    def handler(number: int, _: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            called(number)

    for number in WARNINGS:
        signal.signal(number, handler)
    # The thread takes them; this one, and the programs that it starts, keep them blocked.
    hold_warnings()
    threading.Thread(target=_take, daemon=True).start()
    atexit.register(_ignore)  # Python's own end would set back its handlers, not this


def _ignore() -> None:
    for number in WARNINGS:
        signal.signal(number, signal.SIG_IGN)


def _take() -> None:
    # The kernel gives a signal of the process to a thread that does not block it, which is this one
    # alone; Python runs the handler in the main thread nevertheless.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WARNINGS)
    threading.Event().wait()


def not_to_outlive(command: Sequence[str]) -> dict[str, str]:
    """Variables for a command that this process starts itself; none for a program of others.

    A program that is started through one of others, such as mpirun, has that for its parent.
    """
    return {PARENT: str(os.getpid())} if tuple(command[1:3]) == ("-P", "-m") else {}


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal at its parent's death, not to outlive it.

    The kernel sends the signal when the thread ends that started this process, not its process.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    parent = os.environ.pop(PARENT, None)  # not for those that this process starts
    # For one that has died already, while this process was importing, the kernel sends nothing.
    if parent is not None and parent != str(os.getppid()):
        signal.raise_signal(number)


def _described(number: int) -> str:
    name = signal.Signals(number).name
    return f"{name}: a warning, perhaps of a suspension; it ends nothing" if number == NOTED else f"{name}: the end"
