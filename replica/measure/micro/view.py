"""The output of `aiperf micro`: a table and CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

from rich.table import Table

from aiperf.cli.console import PlainConsole
from aiperf.cli.units import percent, si
from aiperf.untrusted.text import for_cell

Row = dict[str, Any]


def as_csv(rows: list[Row]) -> str:
    """Format the results as CSV, one a line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(rows[0])
    writer.writerow(names)
    for row in rows:
        writer.writerow([for_cell(row[name]) if isinstance(row[name], str) else row[name] for name in names])
    return text.getvalue()


def print_table(console: PlainConsole, rows: list[Row]) -> None:
    """Print all results, ceilings first, and the best convolution: the upper bound of the suite."""
    table = Table(title="Micro suite", title_justify="left")
    for heading in ("Operator", "Kind", "Shape", "Pass", "Stack", "Batch"):
        table.add_column(heading, justify="right" if heading == "Batch" else "left")
    energy = ["OP/J"] if any(row.get("operations_per_joule") for row in rows) else []
    for heading in ("OPS", "Images/s", "B/s", "Of ceiling", "Bound", "Spread", "Error", *energy):
        table.add_column(heading, justify="left" if heading == "Bound" else "right")
    for row in rows:
        spread = percent(row["spread"]) + (" noisy" if row["noisy"] else "")
        over = " *" if row["mark"] else ""
        table.add_row(
            row["operator"],
            row["kind"],
            row["shape"],
            row["pass"],
            row["stack"],
            str(row["batch"]),
            si(row["ops_per_s"], "OPS"),
            si(row["images_per_s"]),
            si(row["bytes_per_s"], "B/s"),
            percent(min(row["share_of_ceiling"], 1.0)) + over if row["share_of_ceiling"] is not None else "-",
            row["bound"] or "-",
            spread,
            f"{row['error_against_reference']:.0e}",
            *([si(row["operations_per_joule"], "OP/J")] * len(energy)),
        )
    console.print(table)
    if any(row["mark"] for row in rows):
        console.print("* at the ceiling or above: the algorithm saves operations, or the data are in a cache")
    convolutions = [row for row in rows if row["operator"] == "conv"]
    if convolutions:
        best = max(convolutions, key=lambda row: float(row["ops_per_s"]))
        console.print(f"best convolution: {si(best['ops_per_s'], 'OPS')} ({best['shape']}, {best['stack']})")
