"""A display that keeps the state of a large run in a file, for those who watch it elsewhere."""

import contextlib
import os
from math import inf

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.files import atomic_file
from aiperf.host import this_host
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.snapshot import INTERVAL_S, ReplicaRow, Snapshot
from primary.display.state import LiveReplica, LiveRun


class SnapshotDisplay:
    """Writes a view at most once in `INTERVAL_S`, in the thread that it is called in.

    A file system that refuses costs a snapshot, and nothing else.
    """

    def __init__(self, paths: RunPaths, config: RunConfig, clock: Clock) -> None:
        self._path = paths.snapshot
        self._config = config
        self._clock = clock
        self._host, self._pid = this_host().name(), os.getpid()
        self._next_s = -inf

    def event(self, text: str) -> None:
        """No-op: events are in the log."""

    def refresh(self, view: LiveRun) -> None:
        """Write the view if a snapshot is due."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        data = self._snapshot(view).model_dump_json().encode()
        with contextlib.suppress(OSError), atomic_file(self._path) as stream:
            stream.write(data)

    def close(self) -> None:
        """Remove the snapshot: from now on the records have everything."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _snapshot(self, view: LiveRun) -> Snapshot:
        rows = tuple(map(_row, view.replicas))
        return Snapshot(
            name=self._config.run.name,
            simulated=self._config.training.trainer == "simulated",
            validation_images=self._config.dataset.validation_images,
            host=self._host,
            pid=self._pid,
            written_ms=self._clock.utc_ms(),
            released=view.elapsed_s is not None,
            elapsed_s=view.elapsed_s or 0.0,
            duration_s=view.duration_s,
            trials=max((row[3] or 0 for row in rows), default=0),
            best_accuracy=max((r.best_accuracy for r in view.replicas if r.best_accuracy is not None), default=None),
            operations=sum(row[-1] for row in rows),
            replicas=rows,
        )


def _row(view: LiveReplica) -> ReplicaRow:
    progress = view.progress
    if progress is None:
        return (view.replica, view.state, None, None, None, None, None, 0)
    return (
        view.replica,
        view.state,
        progress.phase,
        progress.trial,
        view.round,
        progress.epoch,
        progress.accuracy,
        view.operations,
    )
