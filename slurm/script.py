"""The job script of a run, ready for sbatch. The run inside finds its allocation by itself."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.config.placement import nodes_needed
from aiperf.config.settings import RunConfig
from aiperf.processes import python_module
from slurm.commands import resource_options

STOP_SIGNAL_S = 120
"""SLURM warns the run this many seconds before the time limit, for an orderly end."""


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """The run of a script: its configuration, words after `aiperf run`, Python, and log."""

    config: RunConfig
    words: tuple[str, ...]
    python: str
    log: str


def job_script(request: ScriptRequest) -> str:
    """The script as text."""
    config = request.config
    directives = [
        f"--job-name=aiperf-{_safe(config.run.name)}",
        f"--nodes={nodes_needed(config)}",
        f"--output={request.log}",
        # The batch shell gets the signal and passes it on.
        f"--signal=B:TERM@{STOP_SIGNAL_S}",
        # A requeued run would begin again in a directory that is in use.
        "--no-requeue",
        *resource_options(config.slurm),
    ]
    command = python_module("aiperf", "run", *request.words, "--launcher", "slurm", python=request.python)
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {directive}" for directive in directives),
        "",
        "set -eu",
        *_activation(config.environment.activate),
        "# SLURM's warning before the time limit reaches this shell: pass it on, then wait for the orderly end.",
        f"{shlex.join(command)} &",
        "run=$!",
        "trap 'kill -TERM $run' TERM",
        "wait $run && exit 0",
        "wait $run",
        "",
    ]
    return "\n".join(lines)


def _activation(line: str | None) -> Sequence[str]:
    return (line,) if line else ()


def _safe(name: str) -> str:
    return "".join(character if character.isalnum() or character in "-_." else "-" for character in name)
