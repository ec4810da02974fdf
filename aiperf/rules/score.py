"""The score (spec: OPS over wall time; regulated score): pure functions of work and its times.

Work done = images trained x (forward + backward) + images evaluated x forward. A completed epoch
counts whatever becomes of its trial; an unfinished epoch counts, up to its last progress report,
only while its trial is alive. Times are integer milliseconds, operations are integers.
"""

from math import log

GRID_MS = 360_000
"""Spacing of the timeline: 0.1 hour."""


def operations_per_second(operations: int, duration_ms: int) -> float:
    """OPS over wall time: the correctly rounded quotient. Zero if no time has passed."""
    return operations * 1000 / duration_ms if duration_ms > 0 else 0.0


def error_of(correct: int, evaluated: int) -> float:
    """1 - top-1 accuracy, at least 1 / (2 x evaluated images), so that its logarithm exists."""
    return max((evaluated - correct) / evaluated, 1 / (2 * evaluated))


def regulated(ops: float, error: float) -> float:
    """Regulated score: -ln(error) x OPS (paper, equation 3)."""
    return -log(error) * ops if error < 1.0 else 0.0
