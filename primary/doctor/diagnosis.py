"""The diagnosis: nodes examined through the launcher, and every check of what was found."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from aiperf.answers import ask_and_wait
from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError
from aiperf.files import remove_folder
from primary import preflight
from primary.doctor.checks import findings_of
from primary.doctor.examiners import Visit, examine_nodes
from primary.doctor.findings import Finding
from primary.doctor.node_answers import Evidence
from primary.launchers import make_launcher
from primary.work.data import science_problems
from slurm.commands import clean_environment
from slurm.states import NODES_FORMAT, NodeState, parse_nodes

PROBE_STEPS = 20
SINFO_TIMEOUT_S = 20.0

TIME_LIMIT_S = 900.0
"""Seconds for a node's examination, the start of its program and of its ranks included."""


@dataclass(frozen=True, slots=True)
class Order:
    """Order to examine a run of this configuration in this directory, which is not made."""

    config: RunConfig
    output: Path
    steps: int = PROBE_STEPS
    """Training steps of the probe; 0: none."""
    limit_s: float = TIME_LIMIT_S


def diagnose(order: Order, clock: Clock) -> list[Finding]:
    """Examine the planned run. Nothing is left on disk."""
    problems = _launcher_problems(order.config)
    partition, science_data = _partition(order.config), science_problems(order.config)
    evidence = Evidence(
        order.config, order.output, launcher_problems=problems, partition=partition, science_data=science_data
    )
    if not problems:
        folder = _scratch(order.output)
        try:
            launcher = make_launcher(order.config, clock)
            # The steps of a probe are those of AutoML's initial architecture.
            steps = 0 if evidence.is_science else order.steps
            visit = Visit(order.config, launcher, clock, folder, steps, order.limit_s)
            answers, silent = asyncio.run(examine_nodes(visit))
        finally:
            remove_folder(folder)
        evidence = replace(evidence, answers=answers, silent=silent, per_node=launcher.per_node)
    return findings_of(evidence)


def _launcher_problems(config: RunConfig) -> tuple[str, ...]:
    """List the reasons why the launcher cannot be made, unreadable variables of a job included."""
    try:
        return tuple(preflight.launcher_problems(config))
    except EnvironmentNotReadyError as error:
        return error.problems


def _partition(config: RunConfig) -> tuple[NodeState, ...] | None:
    """The nodes of the partition if each replica is a job of SLURM; None if not, or unknown."""
    if config.run.launcher != "slurm" or "SLURM_JOB_ID" in os.environ:
        return None
    words = ["sinfo", "--noheader", "--Node", f"--format={NODES_FORMAT}"]
    answer = ask_and_wait(words, SINFO_TIMEOUT_S, clean_environment(os.environ))
    # Without an answer the check of the primary says what is wrong with the launcher.
    return parse_nodes(answer.output, config.slurm.partition) if answer.fine else None


def _scratch(output: Path) -> Path:
    """A directory next to the run's, which the nodes are to see; elsewhere if that is refused."""
    existing = next(parent for parent in output.absolute().parents if parent.is_dir())
    try:
        return Path(tempfile.mkdtemp(prefix=".aiperf-doctor-", dir=existing))
    except OSError:  # the check of the disk says so
        return Path(tempfile.mkdtemp(prefix="aiperf-doctor-"))
