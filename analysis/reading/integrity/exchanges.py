"""Checks of a hybrid training: groups and servers against each other and against the epochs.

Groups go at their own pace. An epoch is that of group 0: its images are those that the servers have
applied since the epoch before, of all groups, and other groups may be in an earlier or a later one.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from aiperf.records.bodies import GroupExchanged, ServerServed
from aiperf.records.damage import Damage
from aiperf.rules.asynchrony import RETURNS
from analysis.reading.integrity.bounds import TIMER_MS, images_of_epoch
from analysis.reading.integrity.view import Placed, RunView, TrialTrace

Exchange = Placed[GroupExchanged]
Served = Placed[ServerServed]


def check_exchanges(trace: TrialTrace[Any], view: RunView) -> Iterator[Damage]:
    """Records of groups and servers that contradict themselves, each other, or the epochs."""
    groups, servers = _by_number(trace)
    training = view.config.training
    is_hybrid = training.groups > 1
    yield from _foreign(groups, training.groups if is_hybrid else 0, "group")
    yield from _foreign(servers, training.parameter_servers if is_hybrid else 0, "server")
    for number, exchanges in sorted(groups.items()):
        yield from _in_order(f"group {number}", exchanges, trace)
        yield from _seconds(exchanges, trace)
        for exchange in exchanges:
            yield from _staleness(exchange)
    for number, served in sorted(servers.items()):
        yield from _in_order(f"server {number}", served, trace)
        for load in served:
            yield from _load(load)
    yield from _lost(groups)
    if is_hybrid:
        yield from _unreported(trace, {"group 0": groups[0], **_named(servers, training.parameter_servers)})
        yield from _sums(trace, groups, servers)
        known = images_of_epoch(view) if not view.is_science else None
        # Rounded up: where the images do not divide evenly, the first groups have one more.
        yield from _shares(groups, -(-known[0] // training.groups) if known is not None else None)


def _by_number(trace: TrialTrace[Any]) -> tuple[dict[int, list[Exchange]], dict[int, list[Served]]]:
    """The records of each group and of each server, in the order of the file."""
    groups, servers = defaultdict[int, list[Exchange]](list), defaultdict[int, list[Served]](list)
    for place in trace.exchanges:
        if isinstance(place.body, GroupExchanged):
            groups[place.body.group].append(place)  # type: ignore[arg-type]
        else:
            servers[place.body.server].append(place)  # type: ignore[arg-type]
    return groups, servers


def _named(servers: dict[int, list[Served]], number: int) -> dict[str, list[Served]]:
    return {f"server {server}": servers[server] for server in range(number)}


def _foreign(own: dict[int, Any], number: int, kind: str) -> Iterator[Damage]:
    """Records of groups or servers that the run does not have."""
    for found, places in sorted(own.items()):
        if found >= number:
            expected = f"less than {number}" if number else "none: trainings of the run are synchronous"
            yield places[0].damage("facts", f"{kind} {found}", expected)


def _in_order(name: str, own: Sequence[Exchange | Served], trace: TrialTrace[Any]) -> Iterator[Damage]:
    """Epochs of a group or server that do not follow each other, or that were not planned."""
    epochs, planned = trace.epochs, trace.started.body.epochs
    expected = epochs[0].body.epoch if epochs else own[0].body.epoch
    for place in own:
        epoch = place.body.epoch
        is_back = isinstance(place.body, GroupExchanged) and place.body.returned
        if epoch != expected and not (is_back and epoch > expected):
            yield place.damage("bounds", f"epoch {epoch} of {name}", f"epoch {expected}")
        elif epoch > planned:
            yield place.damage("bounds", f"epoch {epoch} of {name}", f"at most {planned}, as planned")
        expected = epoch + 1


def _lost(groups: dict[int, list[Exchange]]) -> Iterator[Damage]:
    """Groups that were lost and trained on, or came back unlost; group 0 ends with its trial."""
    for number, own in sorted(groups.items()):
        for place, after in zip(own, [*own[1:], None], strict=True):
            if place.body.lost is not None and (number == 0 or (after is not None and not after.body.returned)):
                expected = "a trial that fails" if number == 0 else "no epoch of it afterwards"
                yield place.damage("facts", f"group {number} was lost in epoch {place.body.epoch}", expected)
        for before, place in zip([None, *own], own, strict=False):
            if place.body.returned and (before is None or before.body.lost is None):
                found = f"group {number} has come back in epoch {place.body.epoch}"
                yield place.damage("facts", found, "an epoch before in which it was lost")
        returned = [place for place in own if place.body.returned]
        for place in returned[RETURNS:]:
            found = f"group {number} has come back {len(returned)} times"
            yield place.damage("bounds", found, f"at most {RETURNS} times in a training")


def _staleness(place: Exchange) -> Iterator[Damage]:
    body = place.body
    if sum(body.staleness) != body.updates:
        found = f"a histogram of {sum(body.staleness)} updates of group {body.group}"
        yield place.damage("bounds", found, f"{body.updates}, its updates")
    if body.updates > body.images or (body.images and not body.updates):
        yield place.damage("bounds", f"{body.updates} updates of {body.images} images", "an image or more for each")


def _load(place: Served) -> Iterator[Damage]:
    if not 0 <= place.body.busy_share <= 1:
        found = f"server {place.body.server} was busy in a share of {place.body.busy_share}"
        yield place.damage("bounds", found, "0 to 1")


def _seconds(own: list[Exchange], trace: TrialTrace[Any]) -> Iterator[Damage]:
    """Check that a group's seconds are durations, and not longer than the trial has lasted."""
    total_s = 0.0
    for place in own:
        body = place.body
        seconds = (body.computing_s, body.group_s, body.waiting_s)
        if not all(isfinite(value) and value >= 0 for value in seconds):
            yield place.damage("bounds", f"seconds of group {body.group}: {seconds}", "numbers from 0 on")
            return
        total_s += sum(seconds)
        passed_ms = place.time_ms - trace.started.time_ms
        if total_s * 1000 > passed_ms + TIMER_MS:
            found = f"group {body.group} has spent {total_s:.1f} s by epoch {body.epoch}"
            yield place.damage("time", found, f"at most {passed_ms / 1000:.1f} s, since its trial began")
            return


def _unreported(trace: TrialTrace[Any], own: dict[str, Any]) -> Iterator[Damage]:
    """Epochs without the records that come with each."""
    known = {name: {place.body.epoch for place in places} for name, places in own.items()}
    for epoch in trace.epochs:
        missing = [name for name, epochs in known.items() if epoch.body.epoch not in epochs]
        if missing:
            yield epoch.damage("bounds", f"epoch {epoch.body.epoch} without that of {missing[0]}", "one of each")


def _sums(
    trace: TrialTrace[Any], groups: dict[int, list[Exchange]], servers: dict[int, list[Served]]
) -> Iterator[Damage]:
    """Images and updates of all groups that are not those of the epochs and of the servers.

    A training that ended by itself has waited for the last report of every group. Before, servers
    have applied updates that groups have not reported yet.
    """
    if trace.ended is None or not len(trace.completed):
        return
    is_over = trace.ended.body.reason != "stopped"
    # A root that dies may have reached some of the servers with its last update, and not others.
    torn = sum(place.body.lost is not None for own in groups.values() for place in own) if len(servers) > 1 else 0
    sent = sum(place.body.updates for own in groups.values() for place in own)
    for number, own in sorted(servers.items()):
        applied = sum(place.body.updates for place in own)
        if applied < sent - torn or (is_over and applied > sent + torn):
            yield own[-1].damage("bounds", f"server {number} applied {applied} updates", f"{sent}, of all groups")
    images = sum(place.body.images for own in groups.values() for place in own)
    trained = sum(place.body.images_trained for place in trace.epochs)
    if is_over and images != trained:
        yield trace.epochs[-1].damage("bounds", f"{images} images of all groups", f"{trained}, of all epochs")


def _shares(groups: dict[int, list[Exchange]], known: int | None) -> Iterator[Damage]:
    """Images of a group's epoch that are not its share of the data set.

    Group g trains the images g, g + G, ... of an epoch, so that shares differ by one image at most;
    `known` is the largest one, None if only the records say. The last epoch of a group may be cut
    short by the end of the training, or of the group.
    """
    whole = (place.body.images for own in groups.values() for place in own if place.body.lost is None)
    largest = known if known is not None else max(whole, default=0)
    for number, own in sorted(groups.items()):
        for place in own:
            images, is_cut = place.body.images, place is own[-1] or place.body.lost is not None
            if images > largest or (images < largest - 1 and not is_cut):
                found = f"{images} images of group {number} in epoch {place.body.epoch}"
                yield place.damage("bounds", found, f"{largest} or one fewer, as in others")
