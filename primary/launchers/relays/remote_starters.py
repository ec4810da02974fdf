"""The remote starters of schedulers: each starts a command on a host of the job."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from aiperf.config.placement import CPUS_DIVIDED, GPUS_DIVIDED
from aiperf.errors import LaunchError
from primary.allocations import Allocation


@dataclass(frozen=True, slots=True)
class RemoteCommand:
    """A command to start on a host of an allocation, which `per_node` such commands share."""

    allocation: Allocation
    host: str
    per_node: int
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Starter:
    """A program that starts commands on other hosts of the job that it is called in."""

    program: str
    forwards_input: bool
    """True if the command has the starter's standard input and output."""
    words: Callable[[RemoteCommand], list[str]]
    """The arguments of the program. Raises LaunchError."""
    own_host: bool = True
    """False if it may not start anything on the host that it is called on."""
    hint: str = ""
    """The scheduler's setting that it needs, for messages."""


def _pbsdsh(request: RemoteCommand) -> list[str]:
    # PBS Pro knows hosts by their lines in the node file only; the last option ends the options.
    return ["-n", str(request.allocation.entries.index(request.host)), "--", *request.command]


def _blaunch(request: RemoteCommand) -> list[str]:
    return ["-z", request.host, "-no-shell", *request.command]


def _qrsh(request: RemoteCommand) -> list[str]:
    # The words are put together and read again by a login shell.
    return ["-inherit", request.host, *map(shlex.quote, request.command)]


def _flux(request: RemoteCommand) -> list[str]:
    one = ["run", "--unbuffered", f"--requires=host:{request.host}", "--nodes=1", "--ntasks=1"]
    if request.per_node == 1:
        return [*one, "--exclusive", *request.command]
    cpus, gpus = request.allocation.share_of(request.host)
    if cpus is None or cpus < request.per_node:
        raise LaunchError(
            f"replica.per_node = {request.per_node}: {request.allocation.title} has {cpus} cores on {request.host}"
        )
    share, count = [f"--cores-per-task={cpus // request.per_node}"], request.per_node
    # The agent is told what is its own already.
    divided = [f"{CPUS_DIVIDED}={count}"]
    if gpus and gpus >= count:
        share.append(f"--gpus-per-task={gpus // count}")
        divided.append(f"{GPUS_DIVIDED}={count}")
    return [*one, *share, "env", *divided, *request.command]


REMOTE_STARTERS = {
    "PBS": Starter("pbsdsh", forwards_input=False, words=_pbsdsh),
    "LSF": Starter("blaunch", forwards_input=True, words=_blaunch),
    # With `job_is_first_task TRUE` the job's script takes the place of a task on its host.
    "Grid Engine": Starter(
        "qrsh",
        forwards_input=True,
        words=_qrsh,
        own_host=False,
        hint="the job's parallel environment needs control_slaves TRUE (qconf -sp PE)",
    ),
    "Flux": Starter("flux", forwards_input=True, words=_flux),
}
"""Starter of each scheduler. SLURM's srun needs no relay: it has a launcher of its own."""
