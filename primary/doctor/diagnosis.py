"""The diagnosis: nodes examined through the launcher, and every check of what was found."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError
from primary import preflight
from primary.doctor.checks import findings_of
from primary.doctor.examiners import Visit, examine_nodes
from primary.doctor.findings import Finding
from primary.doctor.node_answers import Evidence
from primary.launchers import make_launcher

PROBE_STEPS = 20
TIME_LIMIT_S = 900.0
"""For a node's examination, with the start of its program and of its ranks."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to examine: a run of this configuration in this directory, which is not made."""

    config: RunConfig
    output: Path
    steps: int = PROBE_STEPS
    """Training steps of the probe; 0: none."""
    limit_s: float = TIME_LIMIT_S


def diagnose(order: Order, clock: Clock) -> list[Finding]:
    """All findings. Nothing is left on disk."""
    problems = _launcher_problems(order.config)
    evidence = Evidence(order.config, order.output, launcher_problems=problems)
    if not problems:
        folder = _scratch(order.output)
        try:
            launcher = make_launcher(order.config, clock)
            visit = Visit(order.config, launcher, clock, folder, order.steps, order.limit_s)
            answers, silent = asyncio.run(examine_nodes(visit))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        evidence = Evidence(order.config, order.output, answers, silent, per_node=launcher.per_node)
    return findings_of(evidence)


def _launcher_problems(config: RunConfig) -> tuple[str, ...]:
    """Why the launcher cannot be made; a job whose variables do not describe it is one reason."""
    try:
        return tuple(preflight.launcher_problems(config))
    except EnvironmentNotReadyError as error:
        return error.problems


def _scratch(output: Path) -> Path:
    """A directory next to the run's, which the nodes are to see; elsewhere if that is refused."""
    existing = next(parent for parent in output.absolute().parents if parent.is_dir())
    try:
        return Path(tempfile.mkdtemp(prefix=".aiperf-doctor-", dir=existing))
    except OSError:  # the check of the disk says so
        return Path(tempfile.mkdtemp(prefix="aiperf-doctor-"))
