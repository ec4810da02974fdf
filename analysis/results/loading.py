"""A run as pandas frames, for notebooks and other programs (`aiperf.load_run`)."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from aiperf.run_directory.paths import open_run
from analysis.output.frames import csv_tables
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.results.source import opened_run, read_result_data


@dataclass(frozen=True)
class LoadedRun:
    """A run recomputed from its records: the report, and its tables as frames.

    `tables` has the frames by the names of the CSV files of a report: trials, epochs, replicas,
    timeline, failures, rules, hyperparameters and usage. Times (`t_s`) are seconds after the
    release of the replicas.
    """

    report: Report
    tables: dict[str, pd.DataFrame]

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial: architecture, hyperparameters, best accuracy, operations, state."""
        return self.tables["trials"]

    @property
    def epochs(self) -> pd.DataFrame:
        """One row per completed epoch: images, correct predictions, losses, learning rate."""
        return self.tables["epochs"]

    @property
    def timeline(self) -> pd.DataFrame:
        """Score, error and regulated score over time, on the grid of 0.1 hour and at the end."""
        return self.tables["timeline"]


def load_run(path: str | Path) -> LoadedRun:
    """Load a run directory or a submission archive.

    Raises RunDirectoryError if the path holds neither.
    """
    with opened_run(Path(path)) as folder:
        data, state = read_result_data(open_run(folder), unpacked=folder != Path(path))
    report = build_report(data, state)
    return LoadedRun(report, csv_tables(data, report))
