"""Time to count ResNet-50: cold, in a search loop, and by TensorFlow's profiler.

python -m benchmarks.operations [--format json]
"""

import argparse
import itertools
import json
import os
from collections.abc import Callable

from aiperf.network import operations
from aiperf.network.architecture import Architecture
from benchmarks.measure import median_seconds
from search_space.morphisms import Deepen, deepen_sites
from search_space.resnet import resnet

ROUNDS = 9
CALLS = 20
"""Counts a turn: they are a thousand times shorter than the profiler."""


def _children(parent: Architecture) -> Callable[[], Architecture]:
    """Children of one parent, each made before it is asked for."""
    children = [Deepen(site).apply(parent) for site in deepen_sites(parent)]
    return itertools.cycle(children).__next__


def measure() -> dict[str, float]:
    """Milliseconds by way of counting, and ratios to the cold count."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from replica.measure.counting.profilers import tensorflow_forward  # noqa: PLC0415
    from replica.trainer.model.builder import build_model  # noqa: PLC0415

    network = resnet(50, 224, 1000)
    model = build_model(network)
    next_child = _children(network)
    waiting: list[Architecture] = []

    def cold() -> None:
        operations.count.cache_clear()
        operations.count_node.cache_clear()
        operations.count(network)
        waiting.append(next_child())

    def child() -> None:
        operations.count(waiting.pop())

    def repeated() -> None:
        operations.count(network)

    ways = {"cold": cold, "repeated": repeated, "child": child, "profiler": lambda: tensorflow_forward(model)}
    seconds = median_seconds(ways, ROUNDS, repeats={"cold": CALLS, "repeated": CALLS, "child": CALLS})
    result = {f"{name}_ms": value * 1000 for name, value in seconds.items()}
    result["child_to_cold_ratio"] = seconds["child"] / seconds["cold"]
    result["profiler_to_cold_ratio"] = seconds["profiler"] / seconds["cold"]
    return result


def main() -> None:
    """Print the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    result = measure()
    if parser.parse_args().format == "json":
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:24} {value:12.4f}")


if __name__ == "__main__":
    main()
