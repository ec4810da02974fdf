"""Checks before a run starts; all problems are reported at once."""

import contextlib
import importlib.util
import os
import re
import shlex
import socket
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from aiperf.cli.packages import to_install
from aiperf.cli.units import GIB
from aiperf.clock import Clock, SystemClock
from aiperf.config.datasets import data_problems
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError, UsageError
from aiperf.examination import Examination
from aiperf.frameworks import missing_packages
from aiperf.host import free_disk
from aiperf.rules import official_run, science
from aiperf.rules.official_run import Checked
from aiperf.run_directory.ownership import foreign_hands
from aiperf.run_directory.paths import RunPaths, unusable_path
from primary.allocations.time_left import early_end
from primary.launchers import make_launcher
from primary.open_files import files_needed, files_problem


def check(config: RunConfig, output: Path) -> None:
    """Raise UsageError or EnvironmentNotReadyError with every problem; changes nothing on disk."""
    if usage := usage_problems(config, output):
        raise UsageError(*usage)
    if environment := [*machine_problems(config), *disk_problems(config, output)]:
        raise EnvironmentNotReadyError(environment)


def check_end_of_job(config: RunConfig) -> str | None:
    """A warning if the scheduler ends this process's job before the run.

    Raises EnvironmentNotReadyError if the run would be official.
    """
    early = early_end(config)
    # The fingerprint of the data is known on the nodes only.
    if early is not None and not [rule for rule in unmet_rules(config) if rule.rule != "data"]:
        raise EnvironmentNotReadyError([early])
    return early


def unmet_rules(config: RunConfig, facts: Sequence[Examination] = ()) -> tuple[Checked, ...]:
    """The rules that the settings decide and do not meet; `facts` are the nodes', if known."""
    if config.run.suite == "science":
        names, number, size = config.science.workloads, config.science.instances, config.science.size
        workloads = tuple(science.WorkloadFacts(name, number, number, seeds=tuple(range(number))) for name in names)
        generated = size == "rehearsal"
        planned = science.ScienceFacts(config, "unfinished", 0, workloads, (size,), generated=generated)
        return official_run.broken_settings(science.check(science.as_planned(planned)))
    operations = {item.initial_operations for item in facts} - {None}
    aimed = official_run.RunFacts(
        config=config,
        ended="unfinished",
        duration_s=0.0,
        error=1.0,
        images_trained=0,
        precisions=tuple(sorted({item.precision for item in facts})),
        released=config.run.replicas,
        initial_operations=min(filter(None, operations), default=None),
        fingerprints=tuple({item.fingerprint for item in facts}),
    )
    return official_run.broken_settings(official_run.check(official_run.as_planned(aimed)))


def default_output(config: RunConfig, clock: Clock) -> Path:
    """The run directory if none is named: `runs/NAME-TIME`, in local time.

    Spaces and signs that a shell would take for its own become dashes.
    """
    name = "-".join(re.findall(r"[\w.+]+", config.run.name)).strip("-.") or "run"
    return Path("runs") / f"{name}-{datetime.fromtimestamp(clock.utc_ms() / 1000):%Y%m%d-%H%M%S}"


def usage_problems(config: RunConfig, output: Path) -> list[str]:
    """List the problems of the command line and the configuration."""
    return [
        # The local launcher's replicas see this machine's files, unless a container hides them.
        *dataset_problems(config, must_exist=config.run.launcher == "local" and not config.environment.container),
        *search_problems(config),
        *launcher_problems(config),
        *portal_problems(config),
        *output_problems(output, config.search.space is not None),
    ]


def check_resumption(config: RunConfig) -> None:
    """Raise EnvironmentNotReadyError with everything that keeps a run from being resumed here."""
    if problems := machine_problems(config):
        raise EnvironmentNotReadyError(problems)


def dataset_problems(config: RunConfig, must_exist: bool = False) -> list[str]:
    """Reasons why the data set cannot be trained, as far as this machine sees it."""
    if config.needs_data:
        return data_problems(config.run.dataset, config.run.data_dir, must_exist)
    return []


def search_problems(config: RunConfig) -> list[str]:
    """Reasons why the search could propose nothing."""
    if config.run.suite == "automl" and config.search.max_growth <= 1:
        return ["search.max_growth: 1 leaves no network to propose, since every morph adds operations; at least 1.2"]
    return []


def launcher_problems(config: RunConfig) -> list[str]:
    """Reasons why the launcher cannot work with the configuration; it is made and dropped."""
    try:
        make_launcher(config, SystemClock())
    except UsageError as error:
        return [str(error)]
    return []


def portal_problems(config: RunConfig) -> list[str]:
    """Reasons why NNI's portal cannot listen as configured."""
    if config.run.manager != "nni" or config.nni.listen == "loopback":
        return []
    return [
        'nni.listen: "all" is no longer possible: NNI has no password and no encryption, and its portal runs programs; '
        "leave it out, and reach the portal from other machines through the ssh tunnel that the run prints"
    ]


def output_problems(output: Path, with_space: bool = False) -> list[str]:
    """Reasons why a run cannot be written there.

    `with_space`: it writes a hyperparameters.json of its own.
    """
    if problem := unusable_path(output):
        return [f"--output: {problem}"]
    if not output.exists():
        return []
    if not output.is_dir():
        return [f"--output {output} is not a directory; name a new or an empty one"]
    if RunPaths(output).run.exists():
        again = f"aiperf resume {shlex.quote(str(output))}"
        return [
            f"--output {output} holds another run, which was not changed; to resume it: {again} "
            "(or start it with --or-resume); else name a new directory"
        ]
    if not all(_is_left_of_a_start(path, with_space) for path in output.rglob("*")):
        return [f"--output {output} is not empty; name a new or an empty directory"]
    return foreign_hands(output)


def _is_left_of_a_start(path: Path, with_space: bool) -> bool:
    """True for what a run leaves that was killed before it had a run.json; it can begin again."""
    if path.is_dir() and not path.is_symlink():
        return path.name in ("history", "models", "candidates", "logs")
    return (with_space and path.name == "hyperparameters.json") or path.match(".*.tmp")


def machine_problems(config: RunConfig) -> list[str]:
    """The reasons why this machine cannot run a primary; empty if there are none."""
    return [*package_problems(config), *port_problems(config), *limit_problems(config)]


def limit_problems(config: RunConfig) -> list[str]:
    """Limits of this process that are too small for the run."""
    problem = files_problem(f"a run of {config.run.replicas} replica(s)", files_needed(config))
    return [problem] if problem else []


def package_problems(config: RunConfig) -> list[str]:
    """Packages that this machine lacks."""
    problems = missing_packages(config)
    if config.run.manager == "nni" and importlib.util.find_spec("nni") is None:
        problems.append(f"--manager nni: NNI is not installed for {sys.executable}; install it {to_install('nni')}")
    if config.run.launcher == "ray" and importlib.util.find_spec("ray") is None:
        problems.append(
            f"--launcher ray: Ray is not installed for {sys.executable}; "
            f"install the cluster's version of it {to_install('ray')}"
        )
    return problems


def port_problems(config: RunConfig) -> list[str]:
    """Ports that are needed here and taken."""
    if config.run.manager != "nni":
        return []
    taken = any(_answers(address, config.nni.port) for address in ("127.0.0.1", "::1"))
    return [f"nni.port: {config.nni.port} is taken by another program"] if taken else []


def _answers(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port)):
        return True
    return False


def disk_problems(config: RunConfig, output: Path) -> list[str]:
    """Reasons why the file system of the run directory does not take a run."""
    existing = next(parent for parent in (output, *output.absolute().parents) if parent.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return [f"--output {output} cannot be created: {existing} is not writable"]
    free_gib = free_disk(existing) / GIB
    wanted_gib = config.run.min_free_disk_gib
    if free_gib < wanted_gib:
        return [
            f"too little disk space below {existing}: {free_gib:.1f} GiB free, {wanted_gib:.1f} GiB wanted "
            "(run.min_free_disk_gib)"
        ]
    return []
