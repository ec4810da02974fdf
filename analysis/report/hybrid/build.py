"""The part of the report about hybrid training, from the records of groups and servers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from statistics import fmean
from typing import Any

from aiperf.records.bodies import GroupExchanged, ServerServed
from aiperf.records.entries import TrialLedger
from analysis.reading.run_data import RunData
from analysis.report.hybrid.parts import (
    GroupPart,
    HybridPart,
    HybridTrialPart,
    LostGroupPart,
    ServerPart,
    StalenessPart,
)

TIMES = ("computing", "group", "waiting")
"""Parts of a group's time."""


def hybrid_part(data: RunData) -> HybridPart | None:
    """Build the part about the exchange of groups in all trials; None if the run is not hybrid."""
    training = data.manifest.config.training
    entries = [entry for _, entry in sorted(data.ledger.trials.items()) if entry.exchanges]
    if training.groups == 1 and not entries:
        return None
    exchanged = [body for entry in entries for _, body in sorted(entry.exchanges.items())]
    served = [body for entry in entries for _, body in sorted(entry.served.items())]
    own = _all(exchanged, served)
    layout = {"groups": training.groups, "parameter_servers": training.parameter_servers}
    return HybridPart(**(own | layout), trials=tuple(map(_trial, entries)))


def _trial(entry: TrialLedger) -> HybridTrialPart:
    own = [body for _, body in sorted(entry.exchanges.items())]
    served = [body for _, body in sorted(entry.served.items())]
    epochs = sum(body.group == 0 for body in own)
    return HybridTrialPart(trial=entry.trial, epochs=epochs, **_all(own, served))


def _weights(own: Iterable[GroupExchanged]) -> dict[tuple[int, int], float]:
    """Seconds of group 0 in each epoch of a trial: servers state their load in its epochs."""
    return {(body.trial, body.epoch): _seconds(body) for body in own if body.group == 0}


def _seconds(body: GroupExchanged) -> float:
    return body.computing_s + body.group_s + body.waiting_s


def _all(own: Sequence[GroupExchanged], served: Sequence[ServerServed]) -> dict[str, Any]:
    weights = _weights(own)
    groups, by_server = defaultdict[int, list[GroupExchanged]](list), defaultdict[int, list[ServerServed]](list)
    for group in own:
        groups[group.group].append(group)
    for server in served:
        by_server[server.server].append(server)
    servers = [_server(number, found, weights) for number, found in sorted(by_server.items())]
    known = [part.busy_share for part in servers if part.busy_share is not None]
    return {
        **_exchange(own),
        "groups": len(groups),
        "parameter_servers": len(servers),
        "busy_share": fmean(known) if known else None,
        "group_details": tuple(_group(number, found) for number, found in sorted(groups.items())),
        "server_details": tuple(servers),
    }


def _group(number: int, own: Sequence[GroupExchanged]) -> GroupPart:
    lost = tuple(
        LostGroupPart(trial=body.trial, epoch=body.epoch, reason=body.lost, returned=_return(after))
        for body, after in zip(own, [*own[1:], None], strict=True)
        if body.lost is not None
    )
    return GroupPart(group=number, epochs=len(own), lost=lost, **_exchange(own))


def _return(after: GroupExchanged | None) -> int | None:
    """The epoch of a group after one in which it was lost, if it has come back with it."""
    return after.epoch if after is not None and after.returned else None


def _server(number: int, own: Sequence[ServerServed], weights: Mapping[tuple[int, int], float]) -> ServerPart:
    """A server's load over epochs, weighted by the time of group 0 in each, if it is known."""
    by_time = [(body.busy_share, weights.get((body.trial, body.epoch), 0.0)) for body in own]
    total = sum(weight for _, weight in by_time)
    if total > 0:
        busy: float | None = sum(share * weight for share, weight in by_time) / total
    else:
        busy = fmean(share for share, _ in by_time) if by_time else None
    restarts = sum(body.restarts or 0 for body in own)
    return ServerPart(server=number, updates=sum(body.updates for body in own), busy_share=busy, restarts=restarts)


def _exchange(own: Sequence[GroupExchanged]) -> dict[str, Any]:
    """Sums over records, and the shares that follow from them."""
    seconds = {name: sum(getattr(body, f"{name}_s") for body in own) for name in TIMES}
    total = sum(seconds.values())
    return {
        "updates": sum(body.updates for body in own),
        "images": sum(body.images for body in own),
        "bytes_exchanged": sum(body.bytes_exchanged for body in own),
        "staleness": _staleness(own),
        **{f"{name}_s": value for name, value in seconds.items()},
        **{f"{name}_share": value / total if total > 0 else None for name, value in seconds.items()},
    }


def _staleness(own: Sequence[GroupExchanged]) -> StalenessPart:
    histogram = tuple(map(sum, zip_longest(*(body.staleness for body in own), fillvalue=0)))
    updates = sum(histogram)
    return StalenessPart(
        mean=sum(late * number for late, number in enumerate(histogram)) / updates if updates else None,
        max=max((late for late, number in enumerate(histogram) if number), default=None),
        histogram=histogram,
    )
