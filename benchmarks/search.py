"""The search: cost of a proposal by length of the history, and gain over random morphing.

python -m benchmarks.search [--seeds 20] [--figure docs/figures/search.svg] [--format json]
python -m benchmarks.search --scaled [--seeds 20] [--sizes 500 1000 2000 5000 20000] [--exact 2000]
    [--parts points looks proposals qualities further] [--format json]

With `--scaled`: long histories, and both surrogates; `--exact` is the longest history that the
exact process is measured at.
"""

import argparse
import json
import random
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.scale import search as scaled
from replica.search.demo.architectures import OBJECTIVES, SearchDemo
from replica.search.strategies import STRATEGIES

HISTORIES = (1, 3, 10, 30, 100, 300, 1000)
COST_SEEDS = 3
STEPS = 30


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of a proposal, medians over seeds: the first (no distance cached), the next."""

    history: int
    first_s: float
    next_s: float


@dataclass(frozen=True, slots=True)
class Gain:
    """Best value after every step, median over seeds, by strategy."""

    objective: str
    bayesian: tuple[float, ...]
    random: tuple[float, ...]


def cost(history: int) -> Cost:
    """The cost of a proposal for a history of that length."""
    runs = [
        [step.seconds for step in SearchDemo("peak", history=history, seed=seed).steps(2)] for seed in range(COST_SEEDS)
    ]
    return Cost(history, statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs))


def bests(arguments: tuple[str, str, int]) -> tuple[float, ...]:
    """Best values after every step of one search."""
    objective, strategy, seed = arguments
    return tuple(step.best for step in SearchDemo(objective, strategy, seed=seed).steps(STEPS))


def gains(seeds: int) -> list[Gain]:
    """Run all strategies on every objective, interleaved over the cores."""
    jobs = [(objective, strategy, seed) for objective in OBJECTIVES for seed in range(seeds) for strategy in STRATEGIES]
    random.Random(0).shuffle(jobs)
    with ProcessPoolExecutor() as pool:
        found = dict(zip(jobs, pool.map(bests, jobs), strict=True))

    def median(objective: str, strategy: str) -> tuple[float, ...]:
        curves = [found[objective, strategy, seed] for seed in range(seeds)]
        return tuple(statistics.median(values) for values in zip(*curves, strict=True))

    return [Gain(objective, median(objective, "bayesian"), median(objective, "random")) for objective in OBJECTIVES]


def draw(costs: Sequence[Cost], found: Sequence[Gain], path: Path) -> None:
    """Draw the figure of docs/search.md."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(12, 3.2), layout="constrained")
    axes: Any = figure.subplots(1, len(found) + 1)
    for axis, gain in zip(axes, found, strict=False):
        steps = range(1, len(gain.bayesian) + 1)
        axis.plot(steps, gain.bayesian, label="Bayesian")
        axis.plot(steps, gain.random, label="random", linestyle="--")
        axis.set(title=gain.objective, xlabel="trials", ylabel="best value, median")
        axis.legend()
    last = axes[-1]
    last.loglog([c.history for c in costs], [c.first_s for c in costs], marker="o", label="first proposal")
    last.loglog([c.history for c in costs], [c.next_s for c in costs], marker="s", label="next proposal")
    last.set(title="cost of a proposal", xlabel="architectures in the history", ylabel="CPU seconds")
    last.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def print_scaled(found: scaled.Found, form: str) -> None:
    """Print what was measured of long histories."""
    rows = {part: [asdict(row) for row in rows] for part, rows in found.items()}
    if form == "json":
        print(json.dumps(rows, indent=2))
        return
    for part, listed in rows.items():
        for row in listed:
            print(part, *(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))


def main() -> None:
    """Measure, print, and draw if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--scaled", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 5000, 20_000])
    parser.add_argument("--exact", type=int, default=2000)
    parser.add_argument("--parts", nargs="+", choices=scaled.PARTS, default=scaled.PARTS)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    if arguments.scaled:
        print_scaled(
            scaled.measure_parts(arguments.parts, arguments.seeds, arguments.sizes, arguments.exact), arguments.format
        )
        return
    costs = [cost(history) for history in HISTORIES]
    gained = gains(arguments.seeds)
    if arguments.figure:
        draw(costs, gained, arguments.figure)
    if arguments.format == "json":
        print(json.dumps({"costs": [asdict(c) for c in costs], "gains": [asdict(g) for g in gained]}))
        return
    for item in costs:
        print(f"history {item.history:5}: first proposal {item.first_s:.2f} CPU s, next {item.next_s:.2f} CPU s")
    for gain in gained:
        print(f"{gain.objective:8}: best after {STEPS} trials {gain.bayesian[-1]:.4f}, random {gain.random[-1]:.4f}")


if __name__ == "__main__":
    main()
