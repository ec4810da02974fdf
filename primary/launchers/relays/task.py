"""The task of a relay: a program in the folder of the logs, for the owner's eyes only."""

import asyncio
import contextlib
import json
import os
import secrets
import socket
from pathlib import Path
from typing import Any

from aiperf.config.sections.cluster import EnvironmentSection
from aiperf.host import this_host
from aiperf.machine.addresses import own_addresses
from aiperf.processes import SAFE_PATH
from primary.launchers.contract import ReplicaSpec
from primary.launchers.relays import remote
from primary.launchers.relays.rendezvous import Rendezvous


def write_task(spec: ReplicaSpec, command: tuple[str, ...], rendezvous: Rendezvous | None, own_host: bool) -> Path:
    """Write the program that the relay runs and removes. Raises OSError.

    `own_host` is True if it runs on this host.

    It holds the environment and the secret of the connection, which therefore are in no command
    line. Its name is that of a temporary file, which the end of a run removes.
    """
    path = spec.log.absolute().with_name(f".{spec.log.stem}.{secrets.token_hex(6)}.tmp")
    task: dict[str, Any] = {
        "file": str(path),
        "replica": spec.replica,
        "command": command,
        "log": str(spec.log.absolute()),
        "folder": str(Path.cwd()),
        # Each scheduler's starter hands on different variables, some none.
        "environment": {**os.environ, **SAFE_PATH},
        "variables": spec.environment,
        "own_host": own_host,
        "port": rendezvous.port if rendezvous else None,
        "addresses": own_addresses() if rendezvous else [],
        "secret": rendezvous.secret if rendezvous else "",
    }
    program = Path(remote.__file__).read_text(encoding="utf-8")
    text = f"{program}\n\nimport json\n\nmain(json.loads({json.dumps(task)!r}))\n"
    # Created with its mode: a file that is closed to others later can be opened before.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    return path


async def remove_task(task: Path) -> None:
    """Remove a program that its relay may have left; the end of a run removes any other."""
    with contextlib.suppress(OSError):
        await asyncio.to_thread(task.unlink, missing_ok=True)


def is_this_host(host: str) -> bool:
    """True if a name of the scheduler's is one of this host, or of one of its addresses."""
    own = this_host().name()
    if host == own or host.partition(".")[0] == own.partition(".")[0]:
        return True
    try:
        found = {str(address[4][0]) for address in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found & set(own_addresses()))


def interpreter(settings: EnvironmentSection, own: str) -> tuple[str, ...]:
    """A Python of the node for the relay, outside of containers and of what is activated later."""
    chosen = settings.python or own
    if settings.container or settings.activate is not None or not Path(chosen).is_absolute():
        return ("/usr/bin/env", "python3")
    return (chosen,)
