"""The pace of the work: what a trial trains, and stretches that are too short to look at alone."""

from __future__ import annotations

from collections.abc import Iterable

from aiperf.history.bodies import TrialStarted, WorkloadStarted
from analysis.report.rates.stretches import Stretch

TOGETHER_MS = 10_000
"""Shorter epochs are looked at together: the agent notes a short epoch's end late by as much."""


def trained_of(begun: TrialStarted | WorkloadStarted) -> str:
    """What a trial trains, in words; trials with the same text do the same work for an image."""
    if isinstance(begun, TrialStarted):
        return f"architecture {begun.architecture}"
    return f"workload {begun.workload}, size {begun.size}"


def together(found: Iterable[Stretch]) -> list[Stretch]:
    """The stretches of one trial, put together until each lasts at least 10 s."""
    pieces: list[Stretch] = []
    for piece in found:
        if pieces and min(pieces[-1].duration_ms, piece.duration_ms) < TOGETHER_MS:
            pieces[-1] = _joined(pieces[-1], piece)
        else:
            pieces.append(piece)
    return pieces


def _joined(one: Stretch, other: Stretch) -> Stretch:
    return Stretch(
        one.replica, one.trial, one.first_epoch, one.begin_ms, max(one.end_ms, other.end_ms),
        one.images + other.images, one.operations + other.operations,
    )  # fmt: skip
