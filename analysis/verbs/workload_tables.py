"""The ranking of scientific workloads in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from aiperf.cli.console import open_console
from aiperf.cli.units import number, si
from analysis.output.tables import make_table
from analysis.results.science.ranking import WorkloadRow


def print_workloads(rows: Sequence[WorkloadRow]) -> None:
    """Print one table for each workload, framework and size."""
    for (workload, framework, size), own in groupby(rows, key=lambda row: row.benchmark):
        table = make_table(
            f"{workload} on {framework}, {size} size, by time to quality", "rank", "system", "status", "reached",
            "time to quality (s)", "epochs", "energy", "cost", "sustained", "rules not met",
            left=("system", "status", "rules not met"),
        )  # fmt: skip
        for row in own:
            table.add_row(
                str(row.rank or "-"), row.system, row.status, f"{row.reached} of {row.instances}",
                number(row.time_to_quality_s, 3), number(row.epochs_to_quality, 1), si(row.energy_to_quality_j, "J"),
                "-" if row.cost_to_quality is None else f"{row.cost_to_quality:.4g}", si(row.sustained_ops, "OPS"),
                row.reasons or "-",
            )  # fmt: skip
        open_console().print(table)
