"""A report of a large run (512 replicas, 12 hours, 20,000 trials), and a ranking of 200 runs.

python -m benchmarks.report_at_scale [--replicas N] [--trials N] [--reports N] [--checks N]
    [--format json]

The records are those of an honest run, without damages (`benchmarks.scale.made`): a chain,
witnesses, closings, a digest with cursors into it, the schedule of rounds with 20 epochs at most,
progress every 10 s, architectures made from trained ones by morphs, one accelerator a replica,
telemetry every 30 s. Only the accuracies are made up, and no epoch has evidence of its steps.
Prints seconds of wall time and the memory of the largest process.
With `--checks`, also CPU seconds of reading the run with and without the checks of its integrity,
the median of N in turn.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiperf.run_directory.paths import RunPaths
from analysis.reading import history
from analysis.reading.integrity.all_checks import Inspection
from analysis.reading.integrity.lines import LineFacts
from analysis.reading.integrity.view import WriterRecords, summary_of
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from benchmarks.scale.made.records import generate


def timed(*command: str | Path) -> tuple[float, float]:
    """Wall seconds of a command, and the largest memory of one of its processes in MB."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "aiperf", *map(str, command)], capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr.decode())
    peak_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return time.perf_counter() - began, peak_kb / 1000


def checked(root: Path, rounds: int) -> dict[str, float]:
    """CPU seconds of reading a run with and without its checks, in turn; medians."""
    found: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(rounds):
        for name, seconds in found.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", _READ, str(root), name], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {f"read_{name}_checks_cpu_s": sorted(seconds)[len(seconds) // 2] for name, seconds in found.items()}


_READ = """
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from aiperf.run_directory.paths import open_run
from benchmarks import report_at_scale
report_at_scale.read(open_run(Path(sys.argv[1])), sys.argv[2] == "with")
"""


def read(paths: RunPaths, checks: bool) -> None:
    """Read a run and build its report, with or without the checks."""
    if not checks:
        # Private to this benchmark: no option of the program leaves the checks out.
        vars(history)["check_lines"] = lambda *_: LineFacts()
        setattr(Inspection, "add", _note)  # noqa: B010
        setattr(Inspection, "damages", lambda *_: ())  # noqa: B010
    build_report(read_run(paths))


def _note(inspection: Inspection, read: WriterRecords) -> None:
    """Keep what the reading of other files needs."""
    if read.writer.startswith("primary-"):
        inspection.view.primary.files.append(summary_of(read))


def main() -> None:
    """Generate, time, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=512)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--architectures", type=int, default=8_000)
    parser.add_argument("--reports", type=int, default=200)
    parser.add_argument("--checks", type=int, default=0)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        paths = generate(root / "large", arguments.replicas, arguments.trials, arguments.architectures)
        report_s, report_mb = timed("report", paths.root)
        more = checked(paths.root, arguments.checks) if arguments.checks else {}
        small = generate(root / "small", 8, 320, 20)
        timed("report", small.root)
        copies = []
        for number in range(arguments.reports):
            copies.append(root / f"report-{number:03d}.json")
            shutil.copy(small.report_json, copies[-1])
        rank_s, _ = timed("rank", *copies, "--html", root / "ranking.html")
    result = {"report_s": report_s, "report_peak_mb": report_mb, "rank_s": rank_s, **more}
    if arguments.format == "json":
        print(json.dumps(result, indent=2))
    else:
        for key, value in result.items():
            print(f"{key:<24} {value:10.1f}")


if __name__ == "__main__":
    main()
