"""Interleaved timing: candidates take turns, so that a drifting machine is fair to all."""

import statistics
import time
from collections.abc import Callable, Mapping


def median_values(candidates: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median of each candidate's values (such as images/s) over rounds, the first uncounted."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        for name, run in candidates.items():
            value = run()
            if turn > 0:
                found[name].append(value)
    return {name: statistics.median(values) for name, values in found.items()}


def median_seconds(
    candidates: Mapping[str, Callable[[], object]], rounds: int, repeats: Mapping[str, int] | None = None
) -> dict[str, float]:
    """Median wall seconds of each candidate over this many rounds, after one uncounted round.

    A candidate takes `repeats` calls a turn (default 1), so that short ones are not timed on cold
    caches only.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        for name, run in candidates.items():
            calls = (repeats or {}).get(name, 1)
            for _ in range(calls):
                started = time.perf_counter()
                run()
                if turn > 0:
                    times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}
