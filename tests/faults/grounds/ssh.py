"""Replicas over real sshd processes on the loopback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.grounds.contract import Place, missing_programs
from tests.support.hosts.sshd import start_hosts

HOSTS = 3


class Ssh:
    """The launcher `ssh`."""

    pace = 5.0

    def missing(self) -> str:
        return missing_programs("sshd", "ssh-keygen")

    @contextmanager
    def open(self, folder: Path) -> Iterator[Place]:
        hosts = start_hosts(folder, HOSTS)
        try:
            yield Place(("--launcher", "ssh", *hosts.overrides()))
        finally:
            hosts.stop()


SSH = Ssh()
