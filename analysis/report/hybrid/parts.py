"""Parts of the report about hybrid training: groups of ranks that exchange with parameter servers.

Source of the protocol: "Deep Learning at 15PF" (Kurth et al. 2017) and Intel Caffe's parameter
server.
"""

from analysis.report.estimates import Part


class StalenessPart(Part):
    """Staleness of updates: updates that a server had applied since their weights were read."""

    mean: float | None
    """Mean over the updates; null without any."""
    max: int | None
    """The largest; null without any update."""
    histogram: tuple[int, ...]
    """Entry s: number of updates with staleness s. They sum to `updates`."""


class ExchangePart(Part):
    """Exchange between groups and servers in the epochs that the groups have reported."""

    updates: int
    """Updates that the servers applied."""
    images: int
    """Trained images of these updates."""
    bytes_exchanged: int
    """Bytes between groups and servers, in both directions."""
    staleness: StalenessPart
    """Staleness of the updates."""
    computing_s: float
    """Seconds of computing, summed over groups."""
    group_s: float
    """Seconds of all-reduce and broadcast inside the groups, summed over groups."""
    waiting_s: float
    """Seconds of waiting for servers, summed over groups."""
    computing_share: float | None
    """`computing_s` as a share of these three; null without any time."""
    group_share: float | None
    """`group_s` as a share of these three."""
    waiting_share: float | None
    """`waiting_s` as a share of these three."""


class LostGroupPart(Part):
    """The end of a group before that of its training."""

    trial: int
    """Number of the trial."""
    epoch: int
    """Epoch of the group in which it ended.

    Images of applied updates count; the group's share of epochs until its return was not trained.
    """
    reason: str
    """The way in which it ended."""
    returned: int | None
    """Epoch with which it came back; null if it did not."""


class GroupPart(ExchangePart):
    """One group of ranks."""

    group: int
    """Number of the group, from 0."""
    epochs: int
    """Epochs that it has reported; the last one may be cut short by the end of the training."""
    lost: tuple[LostGroupPart, ...]
    """Its ends before those of its trainings."""


class ServerPart(Part):
    """One parameter server."""

    server: int
    """Number of the server, from 0."""
    updates: int
    """Updates of all groups that it applied."""
    busy_share: float | None
    """Share of the epochs' time in which it did not wait for messages; null if nothing is known."""
    restarts: int
    """Number of times that it was killed, and a new process resumed from its memory."""


class ServedPart(ExchangePart):
    """Exchange of all groups, by group and by server."""

    groups: int
    """Groups of ranks."""
    parameter_servers: int
    """Parameter servers."""
    busy_share: float | None
    """Mean of the servers' `busy_share`; null if nothing is known."""
    group_details: tuple[GroupPart, ...]
    """Every group, by number."""
    server_details: tuple[ServerPart, ...]
    """Every server, by number."""


class HybridTrialPart(ServedPart):
    """One hybrid training."""

    trial: int
    """Number of the trial."""
    epochs: int
    """Epochs of the trial: those of group 0."""


class HybridPart(ServedPart):
    """All hybrid trainings of a run together."""

    trials: tuple[HybridTrialPart, ...]
    """Every trial with a reported exchange, by number."""
