"""Parameter servers against all-reduce: one workload, the same ranks and batches, one table.

python -m benchmarks.updates [--ranks 4] [--servers 1,2] [--models 1] [--quality 0.88]
    [--runs FOLDER] [--format json]

The rehearsal of `hepcnn` trains by all-reduce (`training.groups` = 1), and with every rank a group
of its own that exchanges with parameter servers, which are processes next to the ranks.
`images_per_s` is while training; `mb_per_image` are megabytes that a rank sends and receives for
each of its images: of the servers as recorded, of an all-reduce 2 x 2 (N - 1) / N x 4 bytes of each
parameter a step, as a ring does it (Patarasuk and Yuan 2009). `--runs` keeps the runs, and takes
those that are there.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.hybrid import measures, runs
from workloads.science import SCIENCE

COLUMNS = (
    "updates",
    "processes",
    "images_per_s",
    "mb_per_image",
    "waiting_share",
    "staleness_mean",
    "staleness_max",
    "epochs_to_quality",
    "images_to_quality",
    "time_to_quality_s",
    "best_quality",
)

BYTES = 4
"""Bytes of a gradient: float32."""

MB = 1e6


def ring_mb_per_image(parameters: int, ranks: int, batch: int) -> float:
    """Megabytes that a rank sends and receives by a ring all-reduce for each of its images."""
    return 2 * 2 * (ranks - 1) / ranks * BYTES * parameters / batch / MB


def row_of(report: measures.Report, ranks: int, servers: int, quality: float) -> dict[str, Any]:
    """The measures of a run; `servers` is 0 for all-reduce."""
    hybrid = report["hybrid"]
    if hybrid is None:
        networks = SCIENCE.load(runs.WORKLOAD).rehearsal.networks.values()
        traffic = ring_mb_per_image(sum(build().parameter_count for build in networks), ranks, runs.BATCH_SIZE)
    else:
        traffic = hybrid["bytes_exchanged"] / hybrid["images"] / MB
    return {
        "updates": f"{servers} server{'s' if servers > 1 else ''}" if servers else "all-reduce",
        "processes": ranks + servers,
        "images_per_s": measures.EPOCH_IMAGES / measures.epoch_s(report),
        "mb_per_image": traffic,
        **measures.to_quality(report, quality),
    }


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:,.3f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--servers", default="1,2")
    parser.add_argument("--models", type=int, default=1, help="trainings of each, with different seeds")
    parser.add_argument("--quality", type=float, default=measures.TARGET, help="default: the target, %(default)s")
    parser.add_argument("--runs", type=Path, help="folder that keeps the runs")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for servers in (0, *map(int, arguments.servers.split(","))):
            plan = runs.Plan(arguments.runs or Path(name), arguments.ranks, arguments.models, servers=servers or 1)
            report = runs.to_quality(plan, arguments.ranks if servers else 1)
            rows.append(row_of(report, arguments.ranks, servers, arguments.quality))
    if arguments.format == "json":
        print(json.dumps({"quality": arguments.quality, "ranks": arguments.ranks, "rows": rows}, indent=2))
        return
    for column in COLUMNS:
        print(f"{column:18} {'  '.join(f'{_shown(row[column]):>12}' for row in rows)}")


if __name__ == "__main__":
    main()
