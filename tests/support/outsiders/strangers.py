"""Another user of this node, `nobody`, who has nothing to do with a run."""

import http.client
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534


def need_root() -> None:
    """Skip the test unless it may become another user; fail it in CI."""
    if os.geteuid() == 0:
        return
    reason = "only root can become another user; run the tests as root"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Let this process have the rights of `nobody` for files, and open sockets as `nobody`."""
    "".encode("idna")  # sockets import it when they are used, from folders that `nobody` may not enter
    user, group, groups = os.geteuid(), os.getegid(), os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        os.setegid(group)
        os.setgroups(groups)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="aiperf-open-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ask(
    port: int,
    target: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    *,
    body: str | None = None,
    address: str = "127.0.0.1",
) -> tuple[int, bytes]:
    """Status and body of a request that is sent as it is written."""
    connection = http.client.HTTPConnection(address, port, timeout=60)
    try:
        connection.request(method, target, body, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def all_that_comes(name: str) -> bytes:
    """Everything that a local socket in the abstract namespace sends to a stranger."""
    with as_nobody(), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(name.replace("@", "\0", 1))
        found = b""
        while data := connection.recv(1 << 16):
            found += data
        return found
