"""A screening as part of the record of the run that it came before."""

import hashlib
from pathlib import Path

from aiperf.clock import parse_utc
from aiperf.config.duration import format_duration
from aiperf.errors import UsageError
from aiperf.run_directory.manifest import BadNode, Screened
from aiperf.screening.outcome import Outcome, read_outcome, write_outcome
from aiperf.untrusted.text import for_terminal

MOST_AGE_S = 24 * 3600.0
"""Age from which on a screening says nothing about a run: nodes change."""

AHEAD_S = 600.0
"""Seconds by which the clock of another node may be ahead of this one's."""

MOST_BAD = 1000
"""Bad nodes that a run's record lists."""

MOST_REASON = 150


def screened_by(folder: Path, now_ms: int) -> Screened:
    """The result of a screening, for the record of a run. Raises UsageError if it is too old."""
    outcome = read_outcome(folder)
    try:
        age_s = (now_ms - parse_utc(outcome.at)) / 1000
    except ValueError as error:
        raise UsageError(f"--screen {folder}: {error}") from error
    if age_s > MOST_AGE_S:
        raise UsageError(
            f"--screen {folder}: it is {format_duration(age_s)} old; at most a day is allowed: screen anew"
        )
    if age_s < -AHEAD_S:
        raise UsageError(f"--screen {folder}: it was made at {outcome.at}, which is in the future: look at the clocks")
    return Screened(
        at=outcome.at,
        sha256=hashlib.sha256(write_outcome(outcome).encode()).hexdigest(),
        nodes=len(outcome.nodes),
        quick=outcome.quick,
        bad=tuple(_bad(outcome)[:MOST_BAD]),
    )


def _bad(outcome: Outcome) -> list[BadNode]:
    bad = set(outcome.bad_nodes)
    return [
        BadNode(
            names=tuple(dict.fromkeys(_line(name) for name in (node.known_as, node.host) if name)),
            reason=_line(next(iter(outcome.reasons(node.name)), "")),
        )
        for node in outcome.nodes
        if node.name in bad
    ]


def _line(text: str) -> str:
    return " ".join(for_terminal(text).split())[:MOST_REASON] or "unknown"
