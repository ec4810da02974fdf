"""Signs of a node's health in its samples: counters that grew, and states that are not well.

Signs are rare, so only the samples that have one are kept: of a healthy node nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiperf.machine.health_kinds import (
    CARD_COUNTERS,
    CLOCK_EVENTS,
    NODE_COUNTERS,
    OF_REPLICAS,
    PCIE_MAX_WIDTH,
    PCIE_WIDTH,
    PROGRAM_XIDS,
    REMAP_FAILURE,
    SLOWED,
    SUMS,
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
    replica: int | None = None
    """The replica whose processes have it; None: all of the node."""

    def moved(self, offset_ms: float, replica: int | None) -> Sign:
        """The same on a clock that is behind by so much, in the samples of a replica."""
        own = replica if self.kind in OF_REPLICAS else None
        return Sign(self.kind, self.device, self.times_ms - offset_ms, self.values, own)

    def only(self, wanted: NDArray[np.bool_]) -> Sign:
        """Some of the samples."""
        return Sign(self.kind, self.device, self.times_ms[wanted], self.values[wanted], self.replica)


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
    every = [card for own in cards for card in own]
    columns = {kind: values for kind, values in _columns(every) if not np.isnan(values).all()}
    recorded |= columns.keys()
    for device, (rows, places) in _by_device(cards).items():
        times = times_ms[rows]
        for kind, values in columns.items():
            own = values[places]
            if kind in CARD_COUNTERS:
                signs += _growth(kind, device, times, own)
            elif (bad := own > 0).any():
                signs.append(Sign(kind, device, times[bad], own[bad]))
    return Health(tuple(signs), frozenset(recorded))


def _by_device(cards: Sequence[Sequence[CardHealth]]) -> Mapping[str, tuple[list[int], list[int]]]:
    """The rows of each accelerator, and its places among all, by UUID, number or position."""
    found: dict[str, tuple[list[int], list[int]]] = {}
    behind = 0
    for row, own in enumerate(cards):
        for place, card in enumerate(own):
            rows, places = found.setdefault(str(card.uuid or (place if card.index is None else card.index)), ([], []))
            rows.append(row)
            places.append(behind + place)
        behind += len(own)
    return found


def _columns(cards: Sequence[CardHealth]) -> Iterator[tuple[str, Series]]:
    """Each counter, and each state as a number that is above 0 if it is not well."""

    def column(name: str) -> Series:
        return np.fromiter(map(attrgetter(name), cards), np.float64, len(cards))

    for kind in CARD_COUNTERS:
        yield kind, column(kind)
    events = column("clock_events")
    # Beyond 2^53 a float has lost the bits that are asked for.
    reasons = np.where(np.isnan(events) | (events >= 1 << 53), 0, events).astype(np.int64) & sum(SLOWED)
    yield "slowed", np.where(np.isnan(events), np.nan, reasons)
    yield "remap_failure", column("remap_failure")
    width = column("width")
    yield "pcie_width", np.where(np.isnan(width), np.nan, np.where(width < column("full_width"), width, 0.0))


def _growth(kind: str, device: str, times_ms: Series, values: Series) -> list[Sign]:
    """The growth of a counter; one that falls was reset, and has counted from 0 since."""
    there = np.flatnonzero(~np.isnan(values))
    own = values[there]
    if kind in SUMS:
        # It falls when a port or a mount goes away, and grows when that comes back: neither is an
        # event. Only what is beyond all that was seen before is one.
        # Unlike energy, errors know no most that can happen in a time: a wrong reading counts.
        steps = np.diff(np.maximum.accumulate(own))
    else:
        steps = np.diff(own)
        steps = np.where(steps < 0, own[1:], steps)
    grew = steps > 0
    return [Sign(kind, device, times_ms[there][1:][grew], steps[grew])] if grew.any() else []


def _xids(times_ms: Series, samples: Sequence[HealthFields]) -> list[Sign]:
    """The errors of each device, those that programs cause apart."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for time_ms, sample in zip(times_ms.tolist(), samples, strict=True):
        for event in sample.xids or ():
            kind = "xid_of_program" if event.xid in PROGRAM_XIDS else "xid"
            found.setdefault((kind, event.uuid), []).append((time_ms, event.xid))
    return [Sign(kind, device, *np.array(events, np.float64).T) for (kind, device), events in found.items()]
