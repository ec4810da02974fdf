"""The verb `aiperf slurm`: job scripts, cluster configuration, a cluster on one machine."""

import argparse
import shlex
import sys
from pathlib import Path

from aiperf.cli.command import Command, add_action
from aiperf.cli.lines import say, say_text, warn
from aiperf.cli.run_options import add_run_options, read_run_options, words_of
from aiperf.clock import SystemClock
from aiperf.config.placement import nodes_needed
from aiperf.config.settings import RunConfig
from aiperf.errors import EXIT_DONE, UsageError
from aiperf.files import cache_folder
from aiperf.host import this_host
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import open_run
from aiperf.untrusted.documents import read_json
from slurm.configure import gres_conf, read_inventory, slurm_conf
from slurm.local_cluster import LocalCluster
from slurm.script import ScriptRequest, job_script, remarks

MAX_TEST_NODES = 64

SCRIPT_EXAMPLE = "aiperf slurm script --preset quick --replicas 4 --output runs/four --file job.sh && sbatch job.sh"

MOST_INVENTORY_BYTES = 2**28


def default_folder() -> Path:
    """The default folder of the test cluster."""
    return cache_folder() / "testcluster"


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="script|configure|testcluster")
    script = add_action(actions, "script", "write the job script of a run, ready for sbatch", SCRIPT_EXAMPLE)
    add_run_options(script)
    script.add_argument("--output", type=Path, metavar="DIR", help="run directory of a new run")
    script.add_argument("--resume", type=Path, metavar="RUN", help="interrupted run to resume, with its own settings")
    script.add_argument("--file", type=Path, metavar="FILE", help="file for the script (default: standard output)")
    script.add_argument("--log", default="aiperf-%j.log", help="output of the job (default: %(default)s)")
    configure = add_action(
        actions,
        "configure",
        "write slurm.conf and gres.conf for nodes without SLURM",
        "aiperf slurm configure inventory.json --controller head --output conf",
    )
    configure.add_argument("inventory", type=Path, help="JSON of: aiperf nodes probe --format json")
    configure.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the files")
    configure.add_argument(
        "--cluster", default="aiperf", metavar="NAME", help="name of the cluster (default: %(default)s)"
    )
    configure.add_argument("--controller", required=True, metavar="HOST", help="node that runs slurmctld")
    cluster = add_action(
        actions,
        "testcluster",
        "run a real SLURM cluster of several nodes on this machine",
        "aiperf slurm testcluster start --nodes 4",
    )
    cluster.add_argument("what", choices=("start", "stop", "status"), help="the action")
    cluster.add_argument("--nodes", type=int, default=4, metavar="N", help="nodes n1, n2, ... (default: %(default)s)")
    cluster.add_argument(
        "--cpus",
        type=int,
        default=this_host().online_cpus(),
        metavar="N",
        help="claimed CPUs of a node (default: as many as this machine has)",
    )
    cluster.add_argument(
        "--confine",
        action="store_true",
        help="nodes with the CPUs of this machine, to which jobs are confined as on real clusters",
    )
    cluster.add_argument(
        "--folder",
        type=Path,
        default=default_folder(),
        metavar="DIR",
        help="files of the cluster (default: ~/.cache/aiperf/testcluster)",
    )


def _execute(arguments: argparse.Namespace) -> int:
    return {"script": _script, "configure": _write_configuration, "testcluster": _testcluster}[arguments.action](
        arguments
    )


def _script(arguments: argparse.Namespace) -> int:
    if (arguments.output is None) == (arguments.resume is None):
        raise UsageError("name the run directory of a new run with --output DIR, or an old one with --resume RUN")
    config, words = _new_run(arguments) if arguments.resume is None else _interrupted_run(arguments)
    python = config.environment.python or sys.executable
    text = job_script(ScriptRequest(config, words, python, arguments.log))
    for remark in remarks(config):
        warn(f"note: {remark}")
    if arguments.file is None:
        say_text(text)
        return EXIT_DONE
    arguments.file.write_text(text, encoding="utf-8")
    say(f"{arguments.file}: {nodes_needed(config)} node(s); submit it with: sbatch {shlex.quote(str(arguments.file))}")
    return EXIT_DONE


def _new_run(arguments: argparse.Namespace) -> tuple[RunConfig, tuple[str, ...]]:
    output = str(arguments.output.absolute())
    words = ("run", "--or-resume", *words_of(arguments), "--output", output, "--launcher", "slurm")
    return read_run_options(arguments), words


def _interrupted_run(arguments: argparse.Namespace) -> tuple[RunConfig, tuple[str, ...]]:
    """The settings that the run began with. Raises UsageError and RunDirectoryError."""
    if given := words_of(arguments):
        raise UsageError(f"--resume takes the settings of the run: leave out {shlex.join(given)}")
    config = read_manifest(open_run(arguments.resume)).config
    if config.run.launcher != "slurm":
        raise UsageError(
            f"{arguments.resume} was started by the launcher {config.run.launcher}, not by slurm; "
            f"resume it with: aiperf resume {shlex.quote(str(arguments.resume))}"
        )
    return config, ("resume", str(arguments.resume.absolute()))


def _write_configuration(arguments: argparse.Namespace) -> int:
    nodes = read_inventory(read_json(arguments.inventory, MOST_INVENTORY_BYTES))
    files = {
        "slurm.conf": slurm_conf(nodes, arguments.cluster, arguments.controller),
        "gres.conf": gres_conf(nodes),
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if text:
            (arguments.output / name).write_text(text, encoding="utf-8")
            say(arguments.output / name)
    return EXIT_DONE


def _testcluster(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.nodes <= MAX_TEST_NODES:
        raise UsageError(f"--nodes {arguments.nodes}: 1 to {MAX_TEST_NODES} are allowed")
    cluster = LocalCluster(arguments.folder, SystemClock())
    if arguments.what == "start":
        cluster.start(arguments.nodes, None if arguments.confine else arguments.cpus)
        say(f"export SLURM_CONF={shlex.quote(str(cluster.configuration))}")
    elif arguments.what == "stop":
        cluster.stop()
    else:
        daemons = [process.name() for process in cluster.processes()]
        say(f"{arguments.folder}: {daemons.count('slurmd')} node(s) running")
    return EXIT_DONE


SLURM = Command(
    description="Job scripts for a run, configuration of a cluster from an inventory, a test cluster on one machine.",
    example=SCRIPT_EXAMPLE,
    configure=_configure,
    execute=_execute,
)
