"""Facts that a node finds out without training: devices, ranks, data, memory, disk, its name."""

import argparse
import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
from msgspec.json import Decoder

from aiperf.cli.units import GIB
from aiperf.config.settings import RunConfig
from aiperf.errors import AiperfError, EnvironmentNotReadyError, TrialFailedError
from aiperf.examination import ExamineRequest, FrameworkFacts, MemoryFacts
from aiperf.frameworks import why_not_installed
from aiperf.host import free_disk, this_host
from aiperf.machine.accelerators import restricted_counters
from aiperf.machine.node import describe_node
from aiperf.network.operations import count
from aiperf.processes import SAFE_PATH, python_module
from aiperf.run_directory.paths import RunPaths
from replica.agent.examine.probe import hyperparameters_of
from replica.agent.share import NodeShare, share_of_node
from replica.agent.trial.requests import TrialTraining, train_request
from replica.search.choices import initial_architecture, limits_of
from replica.trainer.data.sample import fingerprint_of
from replica.trainer.frameworks import FRAMEWORKS
from search_space.limits import training_memory

_FRAMEWORK = Decoder(FrameworkFacts)

INTERNET = (socket.AF_INET, socket.AF_INET6)

FRAMEWORK_TIMEOUT_S = 300.0
"""Longest wait for a framework to load: from a cold, shared file system it takes minutes."""


def find_out(arguments: argparse.Namespace, request: ExamineRequest) -> dict[str, Any]:
    """Collect the facts, by their names in `Examination`.

    Blocks for as long as the sample of the data set takes.
    """
    config = request.config
    share = share_of_node(arguments, config)
    fingerprint, data_problem = _data(config, share)
    starter, starter_problem = _starter(config, share)
    return {
        "replica": arguments.replica,
        "node": describe_node(),
        "nodes": max(1, len(share.ranks.hosts)),
        "address": _own_address(),
        "notes": tuple(_notes(share)),
        "interfaces": _interfaces(),
        "accelerators": tuple(item.name for item in share.accelerators),
        "exclusive": any(item.exclusive for item in share.accelerators),
        "precision": share.memory.precision,
        "ranks": share.ranks.ranks,
        "starter": starter,
        "starter_problem": starter_problem,
        "fingerprint": fingerprint,
        "data_problem": data_problem,
        **_network(config, share),
        **_disk(Path(request.folder)),
    }


async def describe_framework(name: str) -> FrameworkFacts:
    """A framework's own view, from a process of its own. Raises EnvironmentNotReadyError."""
    process = await asyncio.create_subprocess_exec(
        *python_module("replica.agent.examine.framework", name),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **SAFE_PATH, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    try:
        async with asyncio.timeout(FRAMEWORK_TIMEOUT_S):
            output, errors = await process.communicate()
    except TimeoutError:
        raise EnvironmentNotReadyError([f"no answer within {FRAMEWORK_TIMEOUT_S:.0f} s"]) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    lines = output.decode(errors="replace").strip().splitlines()
    try:
        return _FRAMEWORK.decode(lines[-1])
    except (IndexError, ValueError):
        # No answer: a framework that crashes while it loads explains itself on standard error only.
        last = " | ".join(errors.decode(errors="replace").strip().splitlines()[-3:]) or "(nothing)"
        raise EnvironmentNotReadyError([f"it ended with exit code {process.returncode}: {last}"]) from None


async def describe_others(chosen: str) -> dict[str, str]:
    """Describe each installed framework that was not chosen, in words, by its name."""
    found: dict[str, str] = {}
    for name in FRAMEWORKS:
        if name == chosen or why_not_installed(name) is not None:
            continue
        try:
            facts = await describe_framework(name)
            found[name] = f"{facts.version}: {', '.join(facts.devices) or 'no accelerators'}"
        except EnvironmentNotReadyError as error:
            found[name] = f"{name} cannot be loaded: {error}"
    return found


def _own_address() -> str | None:
    try:
        found = socket.getaddrinfo(this_host().name(), None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    # Of several addresses, of IPv4 or IPv6, libraries announce one of the network if there is one.
    addresses = [str(each[4][0]) for each in found]
    return next((text for text in addresses if not ip_address(text.partition("%")[0]).is_loopback), addresses[0])


def _interfaces() -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        found = psutil.net_if_addrs().items()
        return tuple(name for name, all_of_it in found if any(each.family in INTERNET for each in all_of_it))
    return ()


def _notes(share: NodeShare) -> Iterator[str]:
    host = this_host()
    quota, memory = host.cpu_quota(), host.memory()
    if quota is not None and quota < host.online_cpus():
        yield f"its control group allows {quota:g} of {host.online_cpus()} CPUs"
    if memory.limit < memory.total:
        yield f"its control group allows {memory.limit / GIB:.1f} of {memory.total / GIB:.1f} GiB of memory"
    if slices := [each for each in share.accelerators if each.is_slice]:
        each, ranks = slices[0].memory_bytes / GIB, -(-share.ranks.ranks // max(1, len(share.ranks.hosts)))
        idle = (
            "; ranks leave some of them idle, which more replicas use (replica.per_node)" if ranks < len(slices) else ""
        )
        yield f"{len(slices)} accelerator(s) of a replica are slices (MIG), the first one of {each:.0f} GiB{idle}"
    if share.accelerators and restricted_counters():
        yield (
            "the counters of its GPUs are for administrators; Nsight Compute (ncu), which counts operations by them, "
            f"needs the driver's option NVreg_RestrictProfilingToAdminUsers=0{_profiler_too()}"
        )
    if why := _homeless():
        yield f"{why}: libraries keep nothing from one start to the next"


def _profiler_too() -> str:
    return "" if shutil.which("ncu") else ", and ncu on the PATH"


def _homeless() -> str | None:
    """The problem with the folder that libraries keep their files in."""
    try:
        home = Path.home()
    except RuntimeError:  # neither a variable nor an entry in the list of users
        return "HOME is not set"
    return None if os.access(home, os.W_OK | os.X_OK) else f"HOME is {home}, which cannot be written"


def _data(config: RunConfig, share: NodeShare) -> tuple[str | None, str | None]:
    """The fingerprint of a sample of the images, and the problem with them."""
    if config.training.trainer != "keras":
        return None, None
    try:
        # The sample needs no architecture.
        training = TrialTraining("", hyperparameters_of(config), 1, config.run.seed, share.memory.precision)
        return fingerprint_of(train_request(config, RunPaths(Path()), training), config.dataset), None
    except (AiperfError, OSError) as error:
        return None, str(error)


def _starter(config: RunConfig, share: NodeShare) -> tuple[str, str | None]:
    """The starter of the ranks, and why it cannot start them."""
    setup, name = share.ranks, str(config.replica.rank_starter)
    try:
        last = setup.groups[-1]  # the farthest from this node
        name = setup.starter_of(last)
        if config.training.trainer != "keras":
            return name, None
        program = setup.start(last, (sys.executable,), setup.environment)[0]
    except TrialFailedError as error:
        return name, error.reason
    except ValueError as error:
        return name, str(error)
    if shutil.which(program) is None:
        return name, f"{program} is not installed"
    return name, None


def _network(config: RunConfig, share: NodeShare) -> dict[str, Any]:
    """Cost and memory of the initial architecture; nothing if the data set's sizes are unknown."""
    try:
        initial = initial_architecture(config)
    except AiperfError:
        return {"memory": None, "parameters": None, "initial_operations": None}
    limits, counted = limits_of(config, initial, share.memory), count(initial)
    # The estimate is linear in the batch: two points give the largest batch that fits.
    fixed, with_one = (training_memory(initial, batch, limits.activation_bytes) for batch in (0, 1))
    free = max(0, (limits.memory_bytes or 0) - fixed)
    memory = MemoryFacts(
        batch=config.batch_size,
        needed=training_memory(initial, config.batch_size, limits.activation_bytes),
        limit=limits.memory_bytes,
        largest_batch=free // (with_one - fixed),
        available=this_host().memory().available,
        refusal=limits.refusal(initial),
    )
    return {"memory": memory, "parameters": counted.parameters, "initial_operations": counted.operations.total}


def _disk(folder: Path) -> dict[str, Any]:
    """The problem with the primary's directory as this node sees it, its free bytes, hard links.

    The node writes a file: on network file systems the permission bits do not decide who may.
    """
    try:
        name = folder / f"written-by-{this_host().name()}-{os.getpid()}"
        name.write_bytes(b"x")
        links = _can_link(name)
        name.unlink()
        return {"folder_problem": None, "free_bytes": free_disk(folder), "hard_links": links}
    except OSError as error:
        return {"folder_problem": str(error), "free_bytes": None}


def _can_link(file: Path) -> bool:
    link = file.with_name(f"{file.name}-again")
    try:
        link.hardlink_to(file)
        link.unlink()
    except OSError:
        return False
    return True
