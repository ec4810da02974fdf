"""Reference convergence of a data set, from runs that trained it.

python -m benchmarks.trainings.convergence RUN [RUN ...]

prints the entry of `aiperf/rules/convergence.toml` as TOML: the lowest error of all trainings of
these runs by the work behind it, and the band. Runs are directories or archives, of one data set.
"""

import argparse
from pathlib import Path

from aiperf.config.toml_text import toml_value
from aiperf.errors import UsageError
from aiperf.rules.convergence import Point, points_of
from aiperf.run_directory.paths import open_run
from analysis.reading.run_data import read_run
from analysis.report.convergence import work_in_epochs
from analysis.report.statistics import initial_trial
from analysis.report.trials import trial_parts
from analysis.results.source import opened_run

AT_EPOCHS = (1.5, 2.5, 3.5, 4.5, 6, 8, 11, 15, 20, 28, 40, 56, 80, 112, 160, 224)
"""Work of the points, in epochs of the initial architecture."""

Training = list[tuple[float, int, int]]


def trainings_of(path: Path) -> tuple[str, list[Training]]:
    """The data set of a run, and work, wrong and evaluated images after each epoch of its trials.

    Raises UsageError if it is damaged or nothing was trained.
    """
    with opened_run(path) as folder:
        data = read_run(open_run(folder))
        initial = initial_trial(trial_parts(data))
        config = data.manifest.config
        if data.damages or config.training.trainer != "keras" or initial is None or not initial.image_operations:
            raise UsageError(f"{path}: a reference needs an undamaged run that trained its initial architecture")
        columns = data.work.columns
        found: list[Training] = [[] for _ in data.work.trials]
        for epochs, row in zip(work_in_epochs(data, initial.image_operations), columns.epochs, strict=True):
            if row[4] > 0 and row[5] >= 0:
                found[int(row[0])].append((float(epochs), int(row[4] - row[5]), int(row[4])))
    return config.run.dataset, [training for training in found if training]


def text_of(name: str, source: str, points: list[Point]) -> str:
    """The entry of the file."""
    rows = [f"    {{ epochs = {p.epochs:.1f}, error = {p.error:.4f}, least = {p.least:.4f} }},\n" for p in points]
    return f"[{name}]\nsource = {toml_value(source)}\npoints = [\n{''.join(rows)}]\n"


def main() -> None:
    """Print the entry of these runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    runs = parser.parse_args().runs
    found = [trainings_of(path) for path in runs]
    if len(names := {name for name, _ in found}) > 1:
        raise UsageError(f"the runs are of several data sets: {', '.join(sorted(names))}")
    trainings = [training for _, each in found for training in each]
    source = f"{len(trainings)} trainings in {len(runs)} run(s) of this project, by benchmarks.trainings.convergence"
    print(text_of(found[0][0], source, points_of(trainings, AT_EPOCHS)), end="")


if __name__ == "__main__":
    main()
