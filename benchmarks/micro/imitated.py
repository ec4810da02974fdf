"""The bandwidth of `aiperf micro --quick`, and its memory, as a process on each imitated machine.

`python -m benchmarks.micro.imitated --stack torch` prints a line for each machine of
tests/support/machines.py: the bandwidth of the triad, marked if it is an upper bound; its ratio to
that of this machine as it is, measured before and after, the median of `--turns`; and the most
memory of the process beyond one that hardly streams, against a quarter of what is available there.
The cores and the memory are this machine's all the same: keep it quiet, with 16 GiB free.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.support.machines import GIB, MACHINES, MIB, Machine, environment_of


class Found(NamedTuple):
    """The triad of one process."""

    bytes_per_s: float
    upper_bound: bool
    peak_bytes: int
    """The most memory that the process had."""


def main() -> None:
    """Measure, and print a line for each machine; exit with 1 if one takes too much memory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stack", default="torch")
    parser.add_argument("--machines", default=";".join(MACHINES), metavar="LIST", help="separated by semicolons")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    hardly = measured(arguments.stack, replace(MACHINES["1 core"], cache=1 * MIB)).peak_bytes
    failed = False
    for name in arguments.machines.split(";"):
        machine, ratios, found = MACHINES[name], list[float](), list[Found]()
        plain = measured(arguments.stack)
        for _ in range(arguments.turns):
            found.append(measured(arguments.stack, machine))
            before, plain = plain, measured(arguments.stack)
            ratios.append(2 * found[-1].bytes_per_s / (before.bytes_per_s + plain.bytes_per_s))
        peak = max(each.peak_bytes for each in found) - hardly
        failed |= peak > machine.available / 4
        bound = " (upper bound)" if found[0].upper_bound else ""
        print(
            f"{name}: {median(each.bytes_per_s for each in found) / 1e9:.1f} GB/s{bound}, ratio {median(ratios):.3f}, "
            f"{peak / GIB:.2f} GiB of {machine.available / 4 / GIB:.2f}",
            flush=True,
        )
    sys.exit(failed)


def measured(stack: str, machine: Machine | None = None) -> Found:
    """The triad of a process on that machine, or on this one as it is. Raises RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="aiperf-imitated-") as folder:
        environment = environment_of(machine, Path(folder)) if machine else {}
        words = ("micro", "--quick", "--operators", "fc", "--kinds", "dense", "--stack", stack, "--format", "json")
        command = [sys.executable, "-P", "-m", "aiperf", *words]
        shown = Path(folder) / "stdout"
        with shown.open("wb") as stdout:
            process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=stdout)
            # For the memory of this child alone, which `subprocess` does not tell.
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        rows: list[dict[str, Any]] = json.loads(shown.read_text() or "[]")
    triads = [row for row in rows if row["operator"] == "triad"]
    if process.returncode or not triads:
        raise RuntimeError(f"no bandwidth (exit code {process.returncode})")
    return Found(triads[0]["bytes_per_s"], triads[0]["upper_bound"], usage.ru_maxrss * 1024)


if __name__ == "__main__":
    main()
