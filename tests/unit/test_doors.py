"""Doors that import-linter cannot see: names imported later, and modules started."""

from __future__ import annotations

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
