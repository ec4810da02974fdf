"""The costs of a run of thousands of replicas, next to their goals.

python -m benchmarks.scale [--only agent,search,primary,status,report,screening,scrape,slow]
                           [--format json]

Each part is a module of this package with `measure(scratch)`, which returns its figures by name.
Parts that write much do so below a temporary folder (TMPDIR).
"""

import argparse
import json
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

GOALS: dict[str, dict[str, str]] = {
    "agent": {"agent_cold_cpu_s": "< 5", "agent_memory_mb": "< 300", "look_files_opened": "1"},
    "search": {"proposal_cpu_s_1000": "", "proposal_cpu_s_20000": "<= 1", "tpe_cpu_s_13000": "< 0.5"},
    "primary": {"primary_core_share_4096": "< 0.2", "dispatch_p99_ms_4096": "< 100", "primary_start_cpu_s_4096": "< 5"},
    "status": {"status_s": "< 1", "status_cpu_s": "< 1"},
    "report": {"report_s": "< 15", "report_peak_mb": "< 1000", "ended_status_s": "< 1", "ended_status_cpu_s": "< 1"},
    "screening": {"screen_cpu_s_512": "<= 20", "screen_page_cpu_s_512": "", "screen_page_opens_s_512": "<= 2"},
    "scrape": {"scrape_ms": "< 50", "scrape_longest_ms": ""},
    "slow": {"slow_found_share": ">= 0.95", "slow_accused_most": "<= 1", "slow_accused_even": "0"},
}
"""The figures of each part, and their goals."""


def measure(parts: list[str], scratch: Path) -> dict[str, float]:
    """The figures of these parts, each measured in turn; they go to standard error meanwhile."""
    found: dict[str, float] = {}
    for part in parts:
        began = time.perf_counter()
        own: dict[str, float] = import_module(f"benchmarks.scale.{part}").measure(scratch)
        print(f"{part}, {time.perf_counter() - began:.0f} s: {own}", file=sys.stderr, flush=True)
        found |= own
    return found


def _parts(text: str) -> list[str]:
    parts = text.split(",")
    if unknown := sorted(set(parts) - set(GOALS)):
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}; known: {', '.join(GOALS)}")
    return parts


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_parts, default=[*GOALS], metavar="PARTS", help=f"some of {','.join(GOALS)}")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(arguments.only, Path(scratch))
    if arguments.format == "json":
        print(json.dumps(found, indent=2))
        return 0
    goals = {key: goal for part in GOALS.values() for key, goal in part.items()}
    for key, value in found.items():
        print(f"{key:<26} {value:10.3g}  {goals.get(key, '')}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
