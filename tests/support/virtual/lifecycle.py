"""A run conducted to its end in virtual time, by the real primary and agents."""

import io
from pathlib import Path

from aiperf.config.settings import RunConfig
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from primary.context import RunContext
from primary.digest import DigestKeeper, open_digest
from primary.dispatcher import Dispatcher
from primary.display.terminal import LineDisplay
from primary.managers import EndReason
from primary.native import NativeManager
from primary.resumption import Start, prepare_resumption
from primary.work import open_work
from rehearsal.virtual.clock import VirtualClock
from rehearsal.virtual.loop import VirtualLoop, run_virtually
from tests.support.virtual.time import InProcessLauncher, Machine


def conduct_virtually(
    root: Path,
    config: RunConfig,
    machine: Machine | None = None,
    shown: io.StringIO | None = None,
    with_digest: bool = True,
) -> EndReason:
    """Make the run directory and run to the end; `shown` takes what the primary displays.

    Without a digest agents read the raw records, as those of earlier versions do.
    """
    paths = RunPaths(root)
    paths.create()
    write_manifest(paths, config)

    async def conduct(loop: VirtualLoop) -> EndReason:
        clock = VirtualClock(loop)
        with Claim.acquire(paths.claims, clock) as claim:
            launcher = InProcessLauncher(config, paths, loop, machine)
            return await _conduct(paths, config, Start(claim, open_work(config)), launcher, shown, with_digest)

    return run_virtually(conduct)


def resume_virtually(root: Path, config: RunConfig, later_s: float) -> EndReason:
    """Resume a run with a new clock, that many seconds after its beginning."""
    paths = RunPaths(root)

    async def conduct(loop: VirtualLoop) -> EndReason:
        loop.advance(later_s)
        clock = VirtualClock(loop)
        with Claim.acquire(paths.claims, clock) as claim:
            start = prepare_resumption(paths, config, claim, True, clock.utc_ms())
            return await _conduct(paths, config, start, InProcessLauncher(config, paths, loop))

    return run_virtually(conduct)


async def _conduct(
    paths: RunPaths,
    config: RunConfig,
    start: Start,
    launcher: InProcessLauncher,
    shown: io.StringIO | None = None,
    with_digest: bool = True,
) -> EndReason:
    with HistoryWriter(paths, "primary", launcher.clock) as writer:
        if start.resumption is not None:
            writer.append(start.resumption)
        for closing in start.closings:
            writer.append(closing)
        digest = open_digest(paths, writer, start.digest) if with_digest else DigestKeeper()
        context = RunContext(
            config=config,
            paths=paths,
            launcher=launcher,
            writer=writer,
            display=LineDisplay(io.StringIO() if shown is None else shown, launcher.clock),
            work=start.work,
            claim=start.claim,
            manager=NativeManager(),
            released_ms=start.released_ms,
            digest=digest,
        )
        reason = await Dispatcher(context).run()
        digest.close(0.0)
        return reason
