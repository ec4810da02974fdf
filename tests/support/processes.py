"""Processes as tests see them: those that end meanwhile, or are of another user, are no error."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


def ask(question: Callable[[], T], otherwise: T) -> T:
    """A process's answer, or `otherwise` if it is gone or may not be asked."""
    try:
        return question()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return otherwise


def words_of(process: psutil.Process) -> list[str]:
    """The command line, word by word; empty if the process is gone."""
    return ask(process.cmdline, list[str]())


def command(process: psutil.Process) -> str:
    """The command line as one text."""
    return " ".join(words_of(process))


def lives(process: psutil.Process | int) -> bool:
    """True if it runs. A process that has ended but was not waited for does not."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
    except psutil.NoSuchProcess:
        return False
    return ask(found.status, psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE


def processes_with(word: object) -> list[psutil.Process]:
    """The living processes that have `word` somewhere in their command lines."""
    return [process for process in psutil.process_iter() if str(word) in command(process) and lives(process)]


def writing_into(folder: Path) -> list[psutil.Process]:
    """The living processes whose output goes into a file below a folder, a removed one too."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            output = Path(f"/proc/{process.pid}/fd/1").readlink()
            if output.is_relative_to(folder) and lives(process):
                found.append(process)
    return found


def family(process: psutil.Process | int) -> list[psutil.Process]:
    """A process and everything below it."""
    try:
        head = psutil.Process(process) if isinstance(process, int) else process
        return [head, *head.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def listening(process: psutil.Process) -> set[str]:
    """The addresses that it accepts connections on."""

    def addresses() -> set[str]:
        connections = process.net_connections(kind="inet")
        return {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}

    return ask(addresses, set())


def all_end(processes: list[psutil.Process], timeout_s: float = 200) -> bool:
    """Wait until none of them runs."""
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    return not any(lives(process) for process in alive)
