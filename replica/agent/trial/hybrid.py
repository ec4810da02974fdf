"""Settings of a hybrid training: its parameter servers, its rates, and the ranks that it needs."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Literal

from aiperf.config.settings import RunConfig
from aiperf.errors import TrialFailedError
from aiperf.facts import HybridTraining
from aiperf.rules.asynchrony import WARM_UP_UPDATES, momentum_of, rate_of
from aiperf.wire.messages import UNFIT

Optimiser = Literal["sgd", "adam"]


def servers_of(config: RunConfig) -> int:
    """Number of parameter servers of a training: 0 with one group."""
    return config.training.parameter_servers if config.training.groups > 1 else 0


def hybrid_of(config: RunConfig, own: Optimiser, momentum: float) -> HybridTraining | None:
    """The hybrid part of a request, for a training with this optimiser; None with one group."""
    training = config.training
    if training.groups == 1:
        return None
    return HybridTraining(
        groups=training.groups,
        servers=training.parameter_servers,
        optimiser=server_optimiser(config, own),
        momentum=momentum_of(training.groups, momentum),
        warm_up=WARM_UP_UPDATES,
        staleness_aware=training.staleness_aware,
    )


def server_optimiser(config: RunConfig, own: Optimiser) -> Optimiser:
    """The optimiser of the servers, by `training.server_optimiser`."""
    return own if config.training.server_optimiser == "own" else "adam"


def default_rate(config: RunConfig, own: Optimiser, rate: float) -> float:
    """The learning rate that replaces a synchronous training's; the same with one group."""
    groups = config.training.groups
    return rate if groups == 1 else rate_of(groups, server_optimiser(config, own), own, rate)


def recorded(hybrid: HybridTraining | None) -> Mapping[str, int | float | str]:
    """The fields of a start's record that describe a hybrid training; none for another one."""
    if hybrid is None:
        return {}
    return {
        "groups": hybrid.groups,
        "parameter_servers": hybrid.servers,
        "optimiser": hybrid.optimiser,
        "momentum": hybrid.momentum,
        "staleness_aware": int(hybrid.staleness_aware),
    }


def check_groups(groups: int, ranks: int, nodes: int) -> None:
    """Raise TrialFailedError ("unfit") if these ranks cannot train in groups on this machine."""
    if groups == 1:
        return
    if ranks % groups:
        raise TrialFailedError(UNFIT, f"{groups} groups cannot share {ranks} ranks evenly (training.groups)")
    if nodes > 1 and max(groups, nodes) % min(groups, nodes):
        raise TrialFailedError(UNFIT, f"{groups} groups cannot share {nodes} nodes evenly (training.groups)")


def check_messages() -> None:
    """Raise TrialFailedError ("unfit") if groups and servers cannot reach each other from here."""
    if importlib.util.find_spec("zmq") is None:
        raise TrialFailedError(UNFIT, "training.groups needs pyzmq: install AIPerf with the extra [hybrid]")
