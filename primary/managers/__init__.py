"""Managers by name: they decide when replicas get their jobs. Register a new manager here."""

from aiperf.registry import Registry
from primary.managers.contract import EndReason, ManagedRun, Manager, OpenRun

MANAGERS: Registry[OpenRun] = Registry(
    "manager", {"native": "primary.native:NativeRun", "nni": "primary.nni.experiment:NniRun"}
)

__all__ = ["MANAGERS", "EndReason", "ManagedRun", "Manager", "OpenRun"]
