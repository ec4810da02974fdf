"""Doors that import-linter cannot see: names imported later, and modules started."""

import re

from aiperf.source_code import PACKAGES
from tests.support.folders import ROOT

LAZY = re.compile(r"\"(?P<module>(?:" + "|".join(PACKAGES) + r")(?:\.\w+)+)(?::\w+)\"")
STARTED = re.compile(r"python_module\(\s*\"(?P<module>[\w.]+)\"")

TABLES = {"aiperf/cli/verbs.py", "aiperf/__init__.py"}
"""The table of verbs and the exports name every room: they belong to none."""

STARTS = {
    ("primary", "replica"),  # agents
    ("primary", "workloads"),  # generated data of a rehearsal
    ("primary", "aiperf"),  # the runs of a series
    ("slurm", "aiperf"),  # the run in a job script
}
"""Rooms that start processes of another room."""


STARTING = re.compile(r"subprocess\.(?:run|Popen|call|check_\w+)\(|create_subprocess_\w+\(|os\.popen\(")

STARTERS = {
    "aiperf/answers.py": "every other program whose text is read",
    "aiperf/cli/waiting.py": "a module of this program, by its path",
    "aiperf/processes.py": "processes that live with a run",
    "analysis/results/signatures.py": "ssh-keygen asks for a passphrase at the terminal",
    "dashboard/rendering.py": "a module of this program",
    "primary/launchers/ray/calls.py": "the program that holds the connection to Ray, which prints JSON",
    "primary/launchers/relays/remote.py": "the replica; it is sent to hosts without AIPerf",
    "primary/nni/tuner.py": "a module of this program",
    "primary/nodes/probe_script.py": "programs of a node without AIPerf, in the C locale",
    "primary/scaling/runs.py": "a module of this program",
    "primary/work/data.py": "a module of this program",
    "replica/agent/examine/facts.py": "a module of this program",
    "replica/agent/trial/devices.py": "a module of this program",
    "replica/trainer/data/portable/decoders.py": "a module of this program",
    "replica/measure/counting/gpu_counters.py": "Nsight Compute around a module of this program, in the C locale",
    "replica/measure/counting/profilers.py": "a module of this program",
    "replica/measure/micro/cli.py": "a module of this program",
    "replica/measure/micro/node_job.py": "a module of this program",
    "replica/measure/profile/cli.py": "a module of this program",
    "replica/measure/profile/step.py": "perf, which counts until it is interrupted, in the C locale",
    "replica/trainer/starters/processes.py": "ranks",
    "replica/trainer/starters/watch.py": "ranks and parameter servers, whose output is not read",
    "workloads/datasets/devkit.py": "a module of this program",
}
"""Modules that start programs. What others print is read by `aiperf.answers` alone."""


def doors(pattern: re.Pattern[str]) -> set[tuple[str, str]]:
    """Pairs of rooms: where a module is named, and the room that it is in."""
    found = set()
    for room in PACKAGES:
        for path in (ROOT / room).rglob("*.py"):
            if str(path.relative_to(ROOT)) not in TABLES:
                named = (match["module"] for match in pattern.finditer(path.read_text()))
                found |= {(room, module.split(".")[0]) for module in named}
    return {(one, other) for one, other in found if one != other}


def test_modules_that_are_imported_by_name_are_of_the_same_room() -> None:
    assert doors(LAZY) - STARTS == set()


def test_processes_are_started_only_where_it_is_meant() -> None:
    assert doors(STARTED) == STARTS


def test_one_module_reads_the_machine() -> None:
    # Its functions in Python's libraries are banned by ruff; these are the files behind them.
    files = ("proc/cpuinfo", "proc/meminfo", "proc/loadavg", "sys/fs/cgroup", "sys/devices/system")
    reading = {
        str(path.relative_to(ROOT))
        for room in PACKAGES
        for path in (ROOT / room).rglob("*.py")
        if any(file in path.read_text() for file in files)
    }
    assert reading == {
        "aiperf/host.py",
        "primary/nodes/probe_script.py",  # sent to nodes without AIPerf
    }


def test_programs_whose_text_is_read_are_asked_in_one_way() -> None:
    starting = {
        str(path.relative_to(ROOT))
        for room in PACKAGES
        for path in (ROOT / room).rglob("*.py")
        if STARTING.search(path.read_text())
    }
    assert starting == set(STARTERS)
    # Modules of this program print the same everywhere; those of others follow the locale.
    ours = [name for name, why in STARTERS.items() if why == "a module of this program"]
    assert [name for name in ours if "python_module(" not in (ROOT / name).read_text()] == []
    here = [name for name, why in STARTERS.items() if why.endswith("in the C locale")]
    assert [name for name in here if not re.search(r"LOCALE|LC_ALL", (ROOT / name).read_text())] == []
