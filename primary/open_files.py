"""The limit of open files of this process, which has pipes to every replica."""

import resource
import sys

from aiperf.config.settings import RunConfig

OTHER_FILES = 256
"""Files and pipes that are not replicas': records, logs, programs that answer questions."""

OF_A_REPLICA = {"local": 2, "ray": 0, "scheduler": 3, "slurm": 2, "ssh": 3}
"""Descriptors of a replica by launcher: its input and output; with ssh what it says, too, and with
PBS the connection of the relay. Ray's driver process has them all."""

MOST_FILES = 1 << 16
"""Upper limit for what is asked for unneeded: some programs close every number up to the limit."""


def files_needed(config: RunConfig) -> int:
    """Files that the primary of a run may have open at a time."""
    # Since Python 3.12 asyncio waits for a child process by a descriptor of it (pidfd_open(2)).
    pipes = OF_A_REPLICA[config.run.launcher]
    watched = 1 if pipes and sys.version_info >= (3, 12) else 0
    return config.run.replicas * (pipes + watched) + OTHER_FILES


def allow_files(needed: int) -> None:
    """Raise the soft limit of open files to the hard one: usual soft limits are 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(_number(hard), max(needed, MOST_FILES))
    if _number(soft) < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def files_problem(what: str, needed: int) -> str | None:
    """The reason why this process cannot have this many files open; None if it can."""
    hard = _number(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    return f"{what} needs {needed} open files, of {hard} allowed (ulimit -Hn)" if hard < needed else None


def _number(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
