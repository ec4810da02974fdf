"""The verb `aiperf nodes`: an inventory of the machines that a run could use."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict

from rich.table import Table

from aiperf import __version__
from aiperf.cli.command import Command, add_action, add_format
from aiperf.cli.console import PlainConsole
from aiperf.cli.lines import say, say_json, warn
from aiperf.cli.units import GIB
from aiperf.clock import SystemClock
from aiperf.config.frameworks import TRAITS
from aiperf.config.sections.cluster import SshSection
from aiperf.config.texts import HOST
from aiperf.errors import EXIT_DONE, EXIT_FAILED, UsageError
from aiperf.untrusted.text import shown
from primary.allocations import ALLOCATIONS, find_allocation
from primary.nodes.probe import Inventory, ProbeRequest, probe
from slurm.hostlists import expand

CLOCK_WARNING_MS = 1000

PROBE_EXAMPLE = "aiperf nodes probe 'gpu[01-16]' --shared /shared --format json > inventory.json"


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = add_action(
        actions,
        "list",
        "show the scheduler's allocation that this shell is in, with its hosts",
        "aiperf nodes list --format json",
    )
    add_format(listed)
    asked = add_action(actions, "probe", "describe nodes, over ssh and in parallel", PROBE_EXAMPLE)
    asked.add_argument("hosts", nargs="+", metavar="HOSTS", help="names, [user@]host[:port], or lists: gpu[01-16]")
    asked.add_argument("--shared", default="", metavar="DIR", help="shared directory: visible and writable?")
    asked.add_argument("--data-dir", default="", metavar="DIR", help="directory of the data set: present?")
    asked.add_argument("--python", default="python3", help="Python of the nodes (default: %(default)s)")
    defaults = SshSection()
    asked.add_argument(
        "--ssh-config", default=defaults.config_file, metavar="FILE", help="configuration of ssh (default: %(default)s)"
    )
    asked.add_argument(
        "--known-hosts", default=defaults.known_hosts, metavar="FILE", help="known host keys (default: %(default)s)"
    )
    add_format(asked)


def _execute(arguments: argparse.Namespace) -> int:
    return _list(arguments.format) if arguments.action == "list" else _probe(arguments)


def _list(format_name: str) -> int:
    allocation = find_allocation(os.environ)
    if format_name == "json":
        found = allocation and {**asdict(allocation), "hosts": allocation.hosts}
        say_json(json.dumps({"allocation": found}, indent=2))
    elif allocation is not None:
        say(allocation, *allocation.hosts)
    if allocation is None:
        warn(f"not inside an allocation of {', '.join(ALLOCATIONS)}")
        return EXIT_FAILED
    return EXIT_DONE


def _probe(arguments: argparse.Namespace) -> int:
    hosts = [host for text in arguments.hosts for host in expand(text)]
    if wrong := [host for host in hosts if not HOST.meets(host)]:
        raise UsageError(f"{shown(wrong[0])}: allowed is {HOST.allowed}")
    settings = SshSection(config_file=arguments.ssh_config, known_hosts=arguments.known_hosts)
    request = ProbeRequest(settings, arguments.python, arguments.shared, arguments.data_dir)
    inventory = probe(hosts, request, SystemClock())
    if arguments.format == "json":
        say_json(inventory.as_json())
    elif inventory.nodes:
        PlainConsole(width=None if sys.stdout.isatty() else 200).print(_table(inventory))
    for name, facts in inventory.nodes.items():
        warn(*(f"note: {name}: {complaint}" for complaint in facts["complaints"]))
    for reason in inventory.failures.values():
        warn(f"failed: {reason}")
    return EXIT_FAILED if inventory.failures else EXIT_DONE


def _table(inventory: Inventory) -> Table:
    table = Table(
        "node", "CPUs", "memory", "accelerators", "network", "clock", "Python", "aiperf", "frameworks", "shared", "data"
    )
    for name, facts in inventory.nodes.items():
        packages, accelerators = facts["packages"], [gpu["name"] for gpu in facts["accelerators"]]
        version = packages.get("aiperf-hpc")
        offset = facts["clock_offset_ms"]
        table.add_row(
            name,
            f"{facts['cpu_count']} x {facts['cpu_model']}",
            f"{(facts['memory_bytes'] or 0) / GIB:.0f} GiB",
            f"{len(accelerators)} x {accelerators[0]}" if accelerators else "none",
            ", ".join(facts["network"]) or "none",
            _shown_offset(offset),
            facts["python"],
            "none" if version is None else version if version == __version__ else f"{version} (!)",
            _frameworks(packages),
            facts["shared"] or "-",
            facts["data"] or "-",
        )
    return table


def _frameworks(packages: Mapping[str, str | None]) -> str:
    # TensorFlow has two distributions.
    names = {"tensorflow-cpu": TRAITS["tensorflow"].title} | {name: own.title for name, own in TRAITS.items()}
    found = {title: f"{title} {packages[name]}" for name, title in names.items() if packages.get(name)}
    return ", ".join(found.values()) or "none"


def _shown_offset(offset_ms: float) -> str:
    # Adding 0.0 makes a negative zero positive.
    return f"{round(offset_ms / 1000, 1) + 0.0:+.1f} s" + (" (!)" if abs(offset_ms) > CLOCK_WARNING_MS else "")


NODES = Command(
    description="Show the allocation's nodes, or describe nodes over ssh, with keys or the agent, known hosts only. "
    "Nothing is installed on them.",
    example=PROBE_EXAMPLE,
    configure=_configure,
    execute=_execute,
)
