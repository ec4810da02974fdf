"""A screening: all nodes visited, measured in passes, and judged. Nothing is left on the nodes."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiperf import __version__
from aiperf.clock import Clock, format_utc
from aiperf.config.placement import nodes_of
from aiperf.config.settings import RunConfig
from aiperf.errors import EnvironmentNotReadyError, UsageError
from aiperf.files import temporary_folder
from aiperf.screening.fabric import Meeting, slow_pairs
from aiperf.screening.judgement import LOWER_SHARE
from aiperf.screening.messages import Row
from aiperf.screening.outcome import Outcome, ScreenedNode, bad_values, remarks_of
from primary import preflight
from primary.launchers import Launcher, make_launcher
from primary.open_files import allow_files, files_needed
from primary.screening.fabric import FabricPass
from primary.screening.visits import Screening, Visit, close_visits, measure_devices, measure_storage, open_visits
from slurm.hostlists import without

PASSES = 3
"""Most passes: a bad value counts if it is bad in all of them."""

STEPS = 20
"""Training steps of the probe."""


@dataclass(frozen=True, slots=True)
class Order:
    """Order to screen the nodes that a run of this configuration would have."""

    config: RunConfig
    folder: Path
    """A folder on the run's file system, for a scratch directory."""
    limit_s: float
    quick: bool = False
    devices: tuple[str, ...] = ()
    lower_share: float = LOWER_SHARE
    floors: Mapping[tuple[str, str], float] = field(default_factory=dict)
    fabric: bool = False
    storage: bool = False


def screen(order: Order, clock: Clock, say: Callable[[str], None]) -> Outcome:
    """Screen the nodes. Raises EnvironmentNotReadyError if the launcher cannot start any."""
    if problems := preflight.launcher_problems(order.config):
        raise EnvironmentNotReadyError(problems)
    allow_files(files_needed(order.config))
    with temporary_folder(".aiperf-screen-", order.folder) as folder:
        return asyncio.run(screen_by(make_launcher(order.config, clock), order, folder, clock, say))


async def screen_by(
    launcher: Launcher, order: Order, folder: Path, clock: Clock, say: Callable[[str], None]
) -> Outcome:
    """Screen the nodes that a launcher starts, with a scratch directory that they all see."""
    steps = 0 if order.quick or order.config.run.suite == "science" else STEPS
    screening = Screening(
        order.config, launcher, folder, order.quick, order.devices, steps, order.limit_s, has_queue(order.config)
    )
    visits = await open_visits(screening)
    try:
        _check_devices(order.devices, visits)
        present = sum(visit.lost is None for visit in visits)
        say(f"{present} of {len(visits)} nodes answer; they are measured")
        meetings, one_node = list[Meeting](), list[Row]()
        for number in range(PASSES):
            await measure_devices(screening, visits)
            if order.fabric:
                names = [node.name for node in screened(order.config, visits)]
                meetings += await FabricPass(screening, visits, number).measure(names)
            if order.storage:
                one_node += await measure_storage(screening, visits)
            nodes = screened(order.config, visits)
            bad = bad_values(nodes, order.lower_share, order.floors)
            if not bad:
                break
            if number + 1 < PASSES:
                say(f"{len({item.node for item in bad})} nodes are slower than their equals: all are measured again")
    finally:
        await close_visits(visits)
    nodes = screened(order.config, visits)
    bad = bad_values(nodes, order.lower_share, order.floors)
    return Outcome(
        at=format_utc(clock.utc_ms()),
        aiperf=__version__,
        name=order.config.run.name,
        launcher=order.config.run.launcher,
        quick=order.quick,
        lower_share=order.lower_share,
        passes=number + 1,
        nodes=nodes,
        bad=bad,
        meetings=tuple(meetings),
        one_node=tuple(one_node),
        remarks=(*remarks_of(nodes), *slow_pairs(meetings, (item.node for item in bad))),
    )


def _check_devices(names: Sequence[str], visits: Sequence[Visit]) -> None:
    """Raises UsageError if no node that answers has a device of one of these names."""
    known = {name for visit in visits if visit.present is not None for name in visit.present.devices}
    if known and (unknown := [name for name in names if name not in known]):
        raise UsageError(f"--devices: no node has {', '.join(unknown)}; they have {', '.join(sorted(known))}")


def has_queue(config: RunConfig) -> bool:
    """True if the start of a replica may wait until others have ended."""
    return config.run.launcher == "ray" or (config.run.launcher == "slurm" and "SLURM_JOB_ID" not in os.environ)


def screened(config: RunConfig, visits: Sequence[Visit]) -> tuple[ScreenedNode, ...]:
    """The nodes under names of their own."""
    hosts = without(config.ssh.hosts, config.run.exclude)
    known = [known_as(config, hosts, visit) for visit in visits]
    times = Counter(known)
    return tuple(
        ScreenedNode(
            name=_name(visit, name, times[name] > 1),
            known_as=name,
            replica=visit.replica,
            host=visit.present.host if visit.present is not None else None,
            lost=visit.lost,
            sheets=tuple(visit.sheets),
        )
        for visit, name in zip(visits, known, strict=True)
    )


def _name(visit: Visit, name: str | None, is_shared: bool) -> str:
    if name is None:
        return f"replica {visit.replica}"
    return f"{name}/{visit.replica}" if is_shared else name


def known_as(config: RunConfig, hosts: tuple[str, ...], visit: Visit) -> str | None:
    """The name by which the launcher or the scheduler knows a visited node; None if unknown."""
    if config.run.launcher == "ssh" and (own := nodes_of(visit.replica, config, hosts)):
        return own[0]
    if visit.present is None:
        return None
    slurm = visit.present.node.get("slurm_node")
    return str(slurm) if slurm else visit.present.host
