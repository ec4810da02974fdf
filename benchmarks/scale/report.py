"""The report of a run of 512 replicas and 12 hours: wall time, and memory of all its processes.

The run is that of `benchmarks.scale.made`: 20,000 trials, 8,000 architectures, 3.2 million records.
"""

import subprocess
import sys
import time
from pathlib import Path

import psutil

from benchmarks.scale.made.records import generate
from benchmarks.scale.status import ask

REPLICAS, TRIALS, ARCHITECTURES = 512, 20_000, 8_000

LOOK_S = 0.5
"""From one look at the memory of the processes to the next."""


def measure(scratch: Path) -> dict[str, float]:
    """Seconds of `aiperf report`, its peak memory in MB, and `aiperf status` after it."""
    root = scratch / "report-at-scale"
    generate(root, REPLICAS, TRIALS, ARCHITECTURES)
    seconds, peak_mb = report(root)
    status_s, status_cpu_s = ask(root, "ended")
    return {
        "report_s": seconds,
        "report_peak_mb": peak_mb,
        "ended_status_s": status_s,
        "ended_status_cpu_s": status_cpu_s,
    }


def report(root: Path, program: tuple[str, ...] = (sys.executable, "-m", "aiperf")) -> tuple[float, float]:
    """Wall seconds of a report, and the most memory in MB that its processes had at one time.

    Of pages that several processes share, each has its part: copies of a process share all that
    neither has written since.
    """
    began = time.perf_counter()
    with subprocess.Popen([*program, "report", str(root)], stdout=subprocess.DEVNULL) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, _memory(process.pid))
            time.sleep(LOOK_S)
    if process.returncode != 0:
        raise SystemExit(f"aiperf report {root} ended with {process.returncode}")
    return time.perf_counter() - began, peak / 1e6


def _memory(pid: int) -> int:
    """Resident bytes of a process and its descendants (PSS)."""
    total = 0
    try:
        own = psutil.Process(pid)
        family = [own, *own.children(recursive=True)]
    except psutil.Error:
        return 0
    for member in family:
        try:
            lines = Path(f"/proc/{member.pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has just ended
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total
