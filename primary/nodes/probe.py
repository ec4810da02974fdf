"""The inventory of a cluster: its nodes describe themselves, over ssh and in parallel."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from aiperf.clock import Clock
from aiperf.config.sections import SshSection
from aiperf.errors import LaunchError
from primary.nodes.ssh_client import connect, find_target

PARALLEL = 32
ANSWER_TIMEOUT_S = 60.0
SCRIPT = Path(__file__).with_name("probe_script.py")


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Parameters of a probe: the Python of the nodes, the shared directory, the data set."""

    settings: SshSection
    python: str = "python3"
    shared: str = ""
    data_dir: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The nodes that answered, and the reasons why others did not."""

    nodes: dict[str, dict[str, Any]]
    failures: dict[str, str]

    def as_json(self) -> str:
        """The inventory for `aiperf slurm configure` and other programs."""
        return json.dumps({"nodes": self.nodes, "failures": self.failures}, indent=2)


def probe(hosts: Sequence[str], request: ProbeRequest, clock: Clock) -> Inventory:
    """Ask all hosts at once; their clocks are compared with `clock`."""
    with ThreadPoolExecutor(min(PARALLEL, max(1, len(hosts)))) as pool:
        answers = list(pool.map(lambda host: _probe_one(host, request, clock), hosts))
    pairs = list(zip(hosts, answers, strict=True))
    return Inventory(
        {host: answer for host, answer in pairs if isinstance(answer, dict)},
        {host: answer for host, answer in pairs if isinstance(answer, str)},
    )


def _probe_one(host: str, request: ProbeRequest, clock: Clock) -> dict[str, Any] | str:
    """The facts, or the reason why there are none."""
    try:
        client = connect(host, request.settings)
    except LaunchError as error:
        return str(error)
    try:
        return _ask(client, host, request, clock)
    except (paramiko.SSHException, OSError, EOFError) as error:
        return f"{host}: {error or type(error).__name__}"
    finally:
        client.close()


def _ask(client: paramiko.SSHClient, host: str, request: ProbeRequest, clock: Clock) -> dict[str, Any] | str:
    words = [request.python, "-", request.shared, request.data_dir]
    stdin, stdout, stderr = client.exec_command(shlex.join(words), timeout=ANSWER_TIMEOUT_S)
    stdin.write(SCRIPT.read_text(encoding="utf-8"))
    stdin.channel.shutdown_write()
    output = stdout.read().decode(errors="replace")
    received_ms = clock.utc_ms()
    try:
        facts: dict[str, Any] = json.loads(output.splitlines()[-1])
    except (ValueError, IndexError):
        complaint = stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        return f"{host}: {request.python} gave no answer: {' '.join(complaint) or output[:200] or 'no output'}"
    facts["clock_offset_ms"] = facts.pop("utc_ms") - received_ms
    facts["address"] = find_target(host, request.settings).host
    return facts
