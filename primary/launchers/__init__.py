"""Launchers by name: where replicas run. The one place where a new launcher is registered."""

from __future__ import annotations

from collections.abc import Callable

from primary.launchers.contract import Launcher, ReplicaProcess, ReplicaSpec
from primary.launchers.local import LocalLauncher

LAUNCHERS: dict[str, Callable[[], Launcher]] = {"local": LocalLauncher}

__all__ = ["LAUNCHERS", "Launcher", "ReplicaProcess", "ReplicaSpec"]
