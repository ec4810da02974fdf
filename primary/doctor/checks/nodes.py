"""The nodes of the replicas: whether they answer, and whether their agents would work."""

import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterator

from aiperf import __version__
from aiperf.cli.units import GIB
from aiperf.config.placement import nodes_of
from aiperf.examination import Examination
from aiperf.untrusted.text import shown
from primary.doctor.contract import Evidence, Finding, Remark, together
from primary.nodes.ssh_client import in_a_shell
from slurm.hostlists import without

_SOFTWARE = "--set environment.python=PYTHON (the one that has AIPerf), or environment.activate"

_BY_LAUNCHER = {
    "slurm": "sinfo --Node --long; a longer wait: --time-limit 1h",
    "scheduler": f"aiperf nodes list (are these the job's hosts?); {_SOFTWARE}",
    "ray": f"ray status (on the primary's node); {_SOFTWARE}",
}
"""Advice if a node gives no answer, by launcher."""

SHOWN_HOSTS = 8


def check_nodes(evidence: Evidence) -> list[Finding]:
    """A run would continue without the replicas that fail here."""
    if evidence.launcher_problems:
        return [
            Finding(
                "nodes",
                "warning",
                "not examined: the launcher cannot start anything (see primary)",
                "aiperf doctor (after the failed checks)",
            )
        ]
    silent = [
        Remark(replica, "failed", f"no answer: {reason}", _remedy(evidence, replica))
        for replica, reason in evidence.silent.items()
    ]
    alike = defaultdict[str, set[str]](set)
    for item in evidence.facts():
        alike[_hardware(item)].add(str(item.node["host"]))
    remarks = [_remark(item, alike[_hardware(item)]) for item in evidence.facts()]
    notes = [Remark(facts.replica, "ok", note) for facts in evidence.facts() for note in facts.notes]
    return together("nodes", [*silent, *remarks, *_talk(evidence), *notes])


def _talk(evidence: Evidence) -> Iterator[Remark]:
    """Warnings about shells, banners and prologs that print: other programs take that for data."""
    for replica, answer in evidence.answers.items():
        if answer.talk:
            count = f"{len(answer.talk)} line{'s' if len(answer.talk) > 1 else ''}"
            yield Remark(
                replica,
                "warning",
                f"{answer.facts.node['host']} prints {count} before its replica, such as {shown(answer.talk[0])}; "
                "AIPerf skips them, mpirun and others may not",
                "print only in interactive shells: case $- in *i*) ... esac (.bashrc, .profile, TaskProlog, "
                "environment.activate)",
            )


def _remark(facts: Examination, alike: set[str]) -> Remark:
    host, version = facts.node["host"], facts.node["aiperf"]
    if version != __version__:
        return Remark(facts.replica, "failed", f"{host} has aiperf {version}, this is {__version__}", _SOFTWARE)
    if facts.unable is not None:
        return Remark(facts.replica, "failed", f"{host} cannot work: {facts.unable}", _cure(facts.unable))
    hosts = sorted(alike)
    shown = ", ".join(hosts) if len(hosts) <= SHOWN_HOSTS else f"{hosts[0]} to {hosts[-1]} ({len(hosts)} nodes)"
    return Remark(facts.replica, "ok", f"{_hardware(facts)}: {shown}")


def _hardware(facts: Examination) -> str:
    gib = int(facts.node["memory_bytes"] or 0) / GIB
    each = f"{facts.nodes} nodes each, the first with " if facts.nodes > 1 else ""
    return f"{each}{facts.node['cpu_count']} CPUs ({facts.node['cpu_model']}), {gib:.0f} GiB of memory"


def _cure(reason: str) -> str:
    if "pip install" in reason:
        return reason[reason.index("pip install") :]
    return (
        "--data-dir DIR (on every node)" if "dataset.json" in reason or "data_dir" in reason else "aiperf config show"
    )


def _remedy(evidence: Evidence, replica: int) -> str:
    config = evidence.config
    if config.run.launcher == "ssh":
        # Without hosts of its own the run takes those of the job, which `aiperf nodes list` prints.
        host = next(iter(nodes_of(replica, config, without(config.ssh.hosts, config.run.exclude))), "HOST")
        probe = f"aiperf nodes probe {shlex.quote(host)}"
        return f"{in_a_shell(host, config.ssh)} true; then: {probe}" if shutil.which("ssh") else probe
    return _BY_LAUNCHER.get(config.run.launcher, _SOFTWARE)
