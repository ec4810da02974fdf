"""Groups, servers and trainings of hybrid training in words, for the terminal and the page."""

from aiperf.cli.units import number, percent, si
from analysis.report.hybrid.parts import ExchangePart, HybridPart, ServedPart

Shown = dict[str, str]
"""Texts by heading."""


def group_rows(part: HybridPart) -> list[Shown]:
    """A row for each group, over all trainings."""
    return [
        {"group": str(group.group), "epochs": str(group.epochs), **_exchanged(group)} for group in part.group_details
    ]


def lost_groups(part: HybridPart) -> list[Shown]:
    """A sentence for each end of a group before its training."""
    return [
        {
            "sentence": f"Group {group.group} was lost in epoch {lost.epoch} of trial {lost.trial} ({lost.reason}); "
            + (
                "the others trained on, and its share of later epochs was not trained."
                if lost.returned is None
                else f"the others trained on, and it came back in epoch {lost.returned}."
            )
        }
        for group in part.group_details
        for lost in group.lost
    ]


def server_rows(part: HybridPart) -> list[Shown]:
    """A row for each parameter server, over all trainings."""
    return [
        {
            "server": str(server.server),
            "updates": f"{server.updates:,}",
            "busy": percent(server.busy_share),
            "restarts": str(server.restarts),
        }
        for server in part.server_details
    ]


def training_rows(part: HybridPart) -> list[Shown]:
    """A row for all trainings, first since long tables are cut, and one for each of them."""
    rows = [{"trial": str(trial.trial), **_layout(trial), **_exchanged(trial)} for trial in part.trials]
    return [{"trial": "all", **_layout(part), **_exchanged(part)}, *rows]


def _layout(part: ServedPart) -> Shown:
    return {
        "groups": str(part.groups),
        "servers": str(part.parameter_servers),
        "servers busy": percent(part.busy_share),
    }


def _exchanged(part: ExchangePart) -> Shown:
    return {
        "updates": f"{part.updates:,}",
        "images": f"{part.images:,}",
        "staleness": f"{number(part.staleness.mean, 2)}, at most {number(part.staleness.max, 0)}",
        "computing": percent(part.computing_share),
        "in the group": percent(part.group_share),
        "waiting": percent(part.waiting_share),
        "exchanged": si(part.bytes_exchanged, "B"),
    }
