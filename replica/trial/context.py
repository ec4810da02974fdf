"""What all trials of a replica share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiperf.config.sections import Precision
from aiperf.config.settings import RunConfig
from aiperf.history.files import HistoryWriter
from aiperf.messages import Message
from aiperf.run_directory.paths import RunPaths
from replica.search.planner import Planner
from replica.trial.trainer_process import RankSetup


@dataclass(frozen=True)
class ReplicaContext:
    """One replica: its configuration, its planner, how its ranks start, and whom it tells."""

    replica: int
    config: RunConfig
    paths: RunPaths
    writer: HistoryWriter
    planner: Planner
    ranks: RankSetup
    precision: Precision
    send: Callable[[Message], None]
