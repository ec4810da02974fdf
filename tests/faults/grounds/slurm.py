"""Replicas as jobs of a real SLURM cluster of several nodes on this machine."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiperf.clock import SystemClock
from slurm.local_cluster import LocalCluster
from tests.faults.grounds.contract import Place, missing_programs

NODES, CPUS = 4, 16


class Slurm:
    """The launcher `slurm`, outside an allocation: each replica is a job of its own."""

    pace = 8.0

    def missing(self) -> str:
        return missing_programs("slurmctld", "slurmd", "munged", "srun")

    @contextmanager
    def open(self, folder: Path) -> Iterator[Place]:
        cluster = LocalCluster(folder, SystemClock())
        cluster.start(NODES, CPUS)

        def queue() -> list[str]:
            shown = subprocess.run(
                ["squeue", "--noheader", "--format=%i %j %T"],
                env={**os.environ, **cluster.environment},
                capture_output=True,
                text=True,
                check=False,
            )
            return shown.stdout.splitlines()

        try:
            yield Place(("--launcher", "slurm"), cluster.environment, left=queue)
        finally:
            cluster.stop()


SLURM = Slurm()
