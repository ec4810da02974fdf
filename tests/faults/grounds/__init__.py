"""Grounds by name: launchers and managers of runs under attack. Register a new one here."""

from aiperf.registry import Registry
from tests.faults.grounds.contract import Ground, Place

GROUNDS: Registry[Ground] = Registry(
    "ground",
    {
        "local": "tests.faults.grounds.local:LOCAL",
        "ssh": "tests.faults.grounds.ssh:SSH",
        "ray": "tests.faults.grounds.ray:RAY",
        "slurm": "tests.faults.grounds.slurm:SLURM",
        "nni": "tests.faults.grounds.nni:NNI",
    },
)

__all__ = ["GROUNDS", "Ground", "Place"]
