"""The job script of a run, ready for sbatch. The run inside finds its allocation by itself."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.config.placement import nodes_needed
from aiperf.config.settings import RunConfig
from aiperf.errors import UsageError
from aiperf.processes import python_module
from aiperf.untrusted.text import has_control, shown
from slurm.commands import job_name, job_options
from slurm.resources import request_of_run
from slurm.times import STOP_SIGNAL_S, tight


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """The run of a script: its configuration, words after `aiperf`, Python, and log."""

    config: RunConfig
    words: tuple[str, ...]
    python: str
    log: str


def job_script(request: ScriptRequest) -> str:
    """The script as text.

    Raises UsageError if its time limit is too short for the run, or an option has several lines.
    """
    config = request.config
    if wrong := [word for word in (*request.words, request.python) if has_control(word)]:
        raise UsageError(f"{shown(wrong[0])} cannot be a word of a job script: it has control characters")
    directives = [
        f"--job-name={job_name(config)}",
        f"--nodes={nodes_needed(config)}",
        f"--output={request.log}",
        # The batch shell gets the signal and passes it on.
        f"--signal=B:TERM@{STOP_SIGNAL_S}",
        # A requeued job resumes its run.
        "--requeue",
        "--open-mode=append",
        *job_options(config, request_of_run(config.slurm)),
    ]
    command = python_module("aiperf", *request.words, python=request.python)
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {_quoted(directive)}" for directive in directives),
        "",
        # Not -u: `module` and the scripts of conda use variables that are not set.
        "set -e",
        *_activation(config.environment.activate),
        "# Warnings reach this shell, and with some options of SLURM all of the job. The end is passed on as TERM.",
        "# The others are ignored until the run heeds them itself: they would kill a Python that is starting.",
        "warned= run=",
        """trap 'warned=1; test -z "$run" || kill -TERM "$run" 2>/dev/null || :' TERM USR2 XCPU""",
        "trap '' USR1",
        f"(trap '' USR2 XCPU; exec {shlex.join(command)}) &",
        "run=$!",
        """test -z "$warned" || kill -TERM "$run" 2>/dev/null || :""",
        "# A signal ends `wait` before the run: wait again, for its orderly end and its code.",
        """while warned= code=0; wait "$run" || code=$?; test -n "$warned"; do :; done""",
        "exit $code",
        "",
    ]
    return "\n".join(lines)


def _quoted(directive: str) -> str:
    """One word for sbatch, which splits a line like a shell. Raises UsageError."""
    if has_control(directive):
        raise UsageError(f"{shown(directive)} cannot be a line of a job script: it has control characters")
    return shlex.quote(directive)


def _activation(line: str | None) -> Sequence[str]:
    if line and has_control(line):
        raise UsageError(f"environment.activate: {shown(line)} is not one line")
    return (line,) if line else ()


def remarks(config: RunConfig) -> list[str]:
    """Remarks on options that long runs usually set, and this one leaves to SLURM."""
    settings, found = config.slurm, []
    if settings.partition is None:
        found.append("slurm.partition is not set: SLURM takes its default partition")
    if settings.account is None:
        found.append("slurm.account is not set: SLURM charges your default account")
    if settings.gpus_per_node is None:
        found.append("slurm.gpus_per_node is not set: no GPUs are asked for, which is right for CPU nodes only")
    if settings.exclusive is False and settings.cpus_per_node is None:
        found.append("slurm.exclusive=false without slurm.cpus_per_node: a replica gets one CPU, and not its node")
    if short := tight(config):
        found.append(short)
    return found
