"""The inventory of a cluster: its nodes describe themselves, over ssh and in parallel.

An answer to `probe_script.py` may hold anything: it is read by types and ranges.
"""

import json
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aiperf.clock import Clock
from aiperf.config.sections.cluster import SshSection
from aiperf.config.texts import TextRule
from aiperf.errors import LaunchError
from aiperf.untrusted.text import cut, shown
from primary.nodes import ssh_client

Said = Annotated[str, TextRule()]
_Count = Annotated[int, Field(ge=1, le=2**24)]
_Bytes = Annotated[int, Field(ge=0, le=2**60)]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class AcceleratorAnswer(_Answer):
    """One accelerator."""

    name: Said
    memory_bytes: _Bytes | None
    driver: Said


class NodeAnswer(_Answer):
    """Description of a node by itself."""

    host: Said
    os: Said
    memory_bytes: _Bytes | None
    accelerators: list[AcceleratorAnswer] = Field(max_length=1024)
    network: dict[Said, int | Said | None] = Field(max_length=1024)
    python: Said
    complaints: list[Said] = Field(default=[], max_length=100)
    """Complaints of the tools that were asked, and accelerators that do not answer."""
    packages: dict[Said, Said | None] = Field(max_length=100)
    slurm: Said | None
    mpi: Said | None
    shared: Said | None
    data: Said | None
    cpu_model: Said
    cpu_count: _Count
    sockets: _Count
    cores_per_socket: _Count
    threads_per_core: _Count
    utc_ms: int = Field(ge=0, le=2**53)


PARALLEL = 32
ANSWER_TIMEOUT_S = 60.0
MOST_BYTES = 2**20
"""Upper limit for the bytes of a node's answer."""

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
        return _ask(host, request, clock)
    except LaunchError as error:
        return str(error)
    except Exception as error:  # a node may answer anything, and must not end the probe of others
        return f"{host}: {cut(str(error)) or type(error).__name__}"


def _ask(host: str, request: ProbeRequest, clock: Clock) -> dict[str, Any] | str:
    ssh_client.check_jumps(host, request.settings)
    words = shlex.join([request.python, "-", request.shared, request.data_dir])
    script = f"exec {words}\n".encode()
    command = [*ssh_client.ssh_command(host, request.settings), ssh_client.in_posix_shell(script)]
    done = ssh_client.run(command, script + SCRIPT.read_bytes(), request.settings.connect_timeout + ANSWER_TIMEOUT_S)
    received_ms = clock.utc_ms()
    output = done.output[:MOST_BYTES]
    # Start files of the login shell may talk before the answer, and others after it.
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines or len(done.output) > MOST_BYTES:
        if done.code == ssh_client.FAILED:
            return ssh_client.explained(host, request.settings, done.errors)
        said = cut(ssh_client.last_line(done.errors) or output[:200] or "no output")
        return f"{host}: {request.python} gave no answer: {said}"
    try:
        answer = NodeAnswer.model_validate_json(lines[-1])
    except ValidationError as error:
        return f"{host}: {_wrong(error)}"
    facts = answer.model_dump()
    # The node takes its time last, so that little but the way back lies between the two clocks.
    facts["clock_offset_ms"] = facts.pop("utc_ms") - received_ms
    facts["address"] = ssh_client.find_target(host, request.settings).host
    return facts


def _wrong(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"its answer is wrong: {'.'.join(map(str, first['loc']))}: {first['msg']}, found {shown(first['input'])}"
