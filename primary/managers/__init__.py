"""Managers by name: what drives a run. `nni/` is imported only where it is used."""

from __future__ import annotations

from primary.managers.contract import EndReason, Manager
from primary.managers.native import NativeManager

__all__ = ["EndReason", "Manager", "NativeManager"]
