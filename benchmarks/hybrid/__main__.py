"""Hybrid against synchronous training: the rehearsal of `hepcnn` in 1, 2 and 4 groups.

python -m benchmarks.hybrid [--groups 1,2,4] [--ranks 4] [--models 1] [--quality 0.88]
    [--framework tensorflow] [--figure docs/figures/hybrid-quality] [--runs FOLDER] [--format json]

Each number of groups trains to the last epoch, with the tuned rates of Adam, and once more with a
rank that waits 0.1 s before every step. One group is the synchronous trainer. `epoch_s` and
`with_straggler_s` are seconds for the images of an epoch while all groups train, without and with
the slow rank; `group_epochs_s` are those of each group for its share, with it. `--runs` keeps the
runs, and takes those that are there.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.hybrid import measures, runs
from benchmarks.hybrid.figure import write_figure

COLUMNS = (
    "groups",
    "learning_rate",
    "time_to_quality_s",
    "epochs_to_quality",
    "images_to_quality",
    "best_quality",
    "staleness_mean",
    "staleness_max",
    "waiting_share",
    "epoch_s",
    "with_straggler_s",
    "group_epochs_s",
)


def row_of(plan: runs.Plan, groups: int, quality: float) -> tuple[dict[str, Any], measures.Report]:
    """The measures of a number of groups, and the report of its trainings."""
    report, slow = runs.to_quality(plan, groups), runs.with_straggler(plan, groups)
    row = {
        "groups": groups,
        "learning_rate": runs.learning_rate(groups),
        **measures.to_quality(report, quality),
        "epoch_s": measures.epoch_s(report),
        "with_straggler_s": measures.epoch_s(slow),
        "group_epochs_s": measures.group_epochs_s(slow),
    }
    return row, report


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_shown, value))
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Measure, print, and draw if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default="1,2,4")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--models", type=int, default=1, help="trainings of each, with different seeds")
    parser.add_argument("--quality", type=float, default=measures.TARGET, help="default: the target, %(default)s")
    parser.add_argument("--framework", choices=("tensorflow", "torch"), default="tensorflow")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--runs", type=Path, help="folder that keeps the runs")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, framework = arguments.runs or Path(name), arguments.framework
        plan = runs.Plan(folder, arguments.ranks, arguments.models, framework=framework)
        numbers = [int(text) for text in arguments.groups.split(",")]
        found = {groups: row_of(plan, groups, arguments.quality) for groups in numbers}
    rows = [row for row, _ in found.values()]
    if arguments.figure is not None:
        write_figure(arguments.figure, {groups: report for groups, (_, report) in found.items()}, arguments.quality)
    if arguments.format == "json":
        shared = {
            "quality": arguments.quality,
            "ranks": plan.ranks,
            "framework": framework,
            "batch_size": runs.BATCH_SIZE,
        }
        print(json.dumps({**shared, "framework": framework, "rows": rows}, indent=2))
        return
    for column in COLUMNS:
        print(f"{column:18} {'  '.join(f'{_shown(row[column]):>18}' for row in rows)}")


if __name__ == "__main__":
    main()
