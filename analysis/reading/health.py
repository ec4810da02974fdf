"""Signs of a node's health in its samples: counters that grew, and states that are not well.

Signs are rare, so only the samples that have one are kept: of a healthy node nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiperf.machine.health.kinds import (
    CARD_COUNTERS,
    CLOCK_EVENTS,
    NODE_COUNTERS,
    PCIE_MAX_WIDTH,
    PCIE_WIDTH,
    REMAP_FAILURE,
    SLOWED,
)

Series = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Sign:
    """A kind of sign of one device, or of the node itself, and the samples that have it."""

    kind: str
    device: str
    """UUID of the accelerator, or its number; empty: the node."""
    times_ms: Series
    values: Series
    """Growth of a counter since the sample before; else the value of the state."""

    def moved(self, offset_ms: float) -> Sign:
        """The same on a clock that is behind by so much."""
        return Sign(self.kind, self.device, self.times_ms - offset_ms, self.values)


@dataclass(frozen=True, slots=True)
class Health:
    """The signs in a file of samples, and the kinds of which its samples have any value."""

    signs: tuple[Sign, ...] = ()
    recorded: frozenset[str] = frozenset()


class CardHealth(msgspec.Struct, gc=False):
    """Values of an accelerator that may be signs; NaN: it does not report them."""

    uuid: Any = None
    index: Any = None
    ecc_corrected: float = msgspec.field(default=np.nan, name=CARD_COUNTERS["ecc_corrected"])
    ecc_uncorrected: float = msgspec.field(default=np.nan, name=CARD_COUNTERS["ecc_uncorrected"])
    remapped_corrected: float = msgspec.field(default=np.nan, name=CARD_COUNTERS["remapped_corrected"])
    remapped_uncorrected: float = msgspec.field(default=np.nan, name=CARD_COUNTERS["remapped_uncorrected"])
    pcie_replays: float = msgspec.field(default=np.nan, name=CARD_COUNTERS["pcie_replays"])
    nvlink_crc_errors: float = msgspec.field(default=np.nan, name=CARD_COUNTERS["nvlink_crc_errors"])
    nvlink_replays: float = msgspec.field(default=np.nan, name=CARD_COUNTERS["nvlink_replays"])
    nvlink_recoveries: float = msgspec.field(default=np.nan, name=CARD_COUNTERS["nvlink_recoveries"])
    clock_events: float = msgspec.field(default=np.nan, name=CLOCK_EVENTS)
    remap_failure: float = msgspec.field(default=np.nan, name=REMAP_FAILURE)
    width: float = msgspec.field(default=np.nan, name=PCIE_WIDTH)
    full_width: float = msgspec.field(default=np.nan, name=PCIE_MAX_WIDTH)


class Xid(msgspec.Struct, gc=False):
    """An error that NVIDIA's driver reported."""

    xid: float
    uuid: str = ""


class HealthFields(msgspec.Struct, gc=False):
    """Values of a sample that may be signs, but for those of accelerators."""

    infiniband_errors: float = np.nan
    infiniband_link_downs: float = np.nan
    cpu_throttle_events: float = np.nan
    cpu_quota_held_s: float = np.nan
    nfs_retransmissions: float = np.nan
    nfs_timeouts: float = np.nan
    xids: list[Xid] | None = None
    xids_heard: float = np.nan


_CARD_STATES = ("slowed", "remap_failure", "pcie_width")


def health_of(times_ms: Series, samples: Sequence[Any], cards: Sequence[Sequence[CardHealth]]) -> Health:
    """The signs in samples at these times; `cards` has the accelerators of each."""
    signs, recorded = list[Sign](), set[str]()
    for kind in NODE_COUNTERS:
        values = np.array([getattr(sample, kind) for sample in samples], np.float64)
        if not np.isnan(values).all():
            recorded.add(kind)
            signs += _growth(kind, "", times_ms, values)
    if any(not np.isnan(sample.xids_heard) for sample in samples):
        recorded.add("xid")
        signs += _xids(times_ms, samples)
    for device, (rows, own) in _by_device(cards).items():
        times = times_ms[rows]
        for kind in CARD_COUNTERS:
            values = _column(own, kind)
            if not np.isnan(values).all():
                recorded.add(kind)
                signs += _growth(kind, device, times, values)
        for kind, values, bad in _states(own):
            if not np.isnan(values).all():
                recorded.add(kind)
                if bad.any():
                    signs.append(Sign(kind, device, times[bad], values[bad]))
    return Health(tuple(signs), frozenset(recorded))


def _by_device(cards: Sequence[Sequence[CardHealth]]) -> Mapping[str, tuple[list[int], list[CardHealth]]]:
    """The rows and values of each accelerator, by UUID, else by number or position."""
    found: dict[str, tuple[list[int], list[CardHealth]]] = {}
    for row, own in enumerate(cards):
        for place, card in enumerate(own):
            rows, values = found.setdefault(str(card.uuid or (place if card.index is None else card.index)), ([], []))
            rows.append(row)
            values.append(card)
    return found


def _column(cards: Sequence[CardHealth], name: str) -> Series:
    return np.array([getattr(card, name) for card in cards], np.float64)


def _states(cards: Sequence[CardHealth]) -> Iterator[tuple[str, Series, NDArray[np.bool_]]]:
    """Each state, its values, and marks of those that are not well."""
    events = _column(cards, "clock_events")
    reasons = np.where(np.isnan(events) | (events >= 1 << 53), 0, events).astype(np.int64) & sum(SLOWED)
    yield "slowed", np.where(np.isnan(events), np.nan, reasons), reasons > 0
    failures = _column(cards, "remap_failure")
    yield "remap_failure", failures, failures > 0
    width, full = _column(cards, "width"), _column(cards, "full_width")
    yield "pcie_width", width, width < full


def _growth(kind: str, device: str, times_ms: Series, values: Series) -> list[Sign]:
    """The growth of a counter; one that falls was reset, and has counted from 0 since."""
    there = np.flatnonzero(~np.isnan(values))
    steps = np.diff(values[there])
    steps = np.where(steps < 0, values[there][1:], steps)
    grew = steps > 0
    return [Sign(kind, device, times_ms[there][1:][grew], steps[grew])] if grew.any() else []


def _xids(times_ms: Series, samples: Sequence[HealthFields]) -> list[Sign]:
    found: dict[str, list[tuple[float, float]]] = {}
    for time_ms, sample in zip(times_ms.tolist(), samples, strict=True):
        for event in sample.xids or ():
            found.setdefault(event.uuid, []).append((time_ms, event.xid))
    return [Sign("xid", device, *np.array(events, np.float64).T) for device, events in found.items()]
