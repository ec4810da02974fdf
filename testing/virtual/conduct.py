"""A new run conducted to its end in virtual time, by the real primary and agents."""

from __future__ import annotations

import io
from pathlib import Path

from aiperf.config.settings import RunConfig
from aiperf.history.files import HistoryWriter
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths
from primary.context import RunContext
from primary.digest.keeper import open_digest
from primary.dispatcher import Dispatcher
from primary.display.terminal import LineDisplay
from primary.managers.contract import EndReason
from primary.native import NativeManager
from primary.work import open_work
from testing.virtual.time import InProcessLauncher, Machine, VirtualClock, VirtualLoop, run_virtually


def conduct_virtually(
    root: Path, config: RunConfig, machine: Machine | None = None, shown: io.StringIO | None = None
) -> EndReason:
    """Make the run directory and run to the end; `shown` takes what the primary displays."""
    paths = RunPaths(root)
    paths.create()
    write_manifest(paths, config)

    async def conduct(loop: VirtualLoop) -> EndReason:
        clock = VirtualClock(loop)
        with Claim(paths.claims, clock) as claim, HistoryWriter(paths, "primary", clock) as writer:
            context = RunContext(
                config=config, paths=paths, launcher=InProcessLauncher(config, paths, loop, machine), writer=writer,
                display=LineDisplay(io.StringIO() if shown is None else shown, clock), work=open_work(config),
                claim=claim, manager=NativeManager(), digest=open_digest(paths, writer),
            )  # fmt: skip
            return await Dispatcher(context).run()

    return run_virtually(conduct)
