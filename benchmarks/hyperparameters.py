"""The tuner: best value after 40 suggestions, by TPE and by random search.

python -m benchmarks.hyperparameters [--seeds 30] [--figure docs/figures/hyperparameters.svg]
[--format json]
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from replica.search.demo.hyperparameters import OBJECTIVES, steps
from replica.search.tuners import TUNERS

SUGGESTIONS = 40

Curves = dict[str, dict[str, list[float]]]
"""Best value after every suggestion, median over seeds, by objective and strategy."""


def measure(seeds: int) -> Curves:
    """Run both strategies on every objective with the same seeds."""
    return {
        objective: {strategy: _median(objective, strategy, seeds) for strategy in TUNERS} for objective in OBJECTIVES
    }


def _median(objective: str, strategy: str, seeds: int) -> list[float]:
    curves = [[step.best for step in steps(objective, strategy, SUGGESTIONS, seed)] for seed in range(seeds)]
    return [statistics.median(values) for values in zip(*curves, strict=True)]


def draw(curves: Curves, path: Path) -> None:
    """Draw the figure of docs/hyperparameters.md."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    axes: Any = figure.subplots(1, len(curves))
    for axis, (objective, by_strategy) in zip(axes, curves.items(), strict=True):
        for strategy, style in (("tpe", "-"), ("random", "--")):
            axis.plot(range(1, SUGGESTIONS + 1), by_strategy[strategy], style, label=strategy)
        axis.set(title=objective, xlabel="suggestions", ylabel="best value, median")
        axis.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure, print, and draw if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    curves = measure(arguments.seeds)
    if arguments.figure:
        draw(curves, arguments.figure)
    if arguments.format == "json":
        print(json.dumps(curves))
        return
    for objective, by_strategy in curves.items():
        print(f"{objective:11}: tpe {by_strategy['tpe'][-1]:.4f}, random {by_strategy['random'][-1]:.4f}")


if __name__ == "__main__":
    main()
