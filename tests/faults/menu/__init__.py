"""Faults by name. Register a new one here."""

from aiperf.registry import Registry
from tests.faults.menu.contract import Fault

MENU: Registry[type[Fault]] = Registry(
    "fault",
    {
        "kill": "tests.faults.menu.kills:Kill",
        "freeze": "tests.faults.menu.freezes:Freeze",
        "clock": "tests.faults.menu.clocks:BootTime",
        "time": "tests.faults.menu.clocks:TimeOfDay",
        "disk": "tests.faults.menu.disks:FullDisk",
        "error": "tests.faults.menu.errors:Errors",
        "hangup": "tests.faults.menu.hangups:HangUp",
        "warning": "tests.faults.menu.warnings:Warn",
        "double": "tests.faults.menu.doubles:DoubleResume",
        "directory": "tests.faults.menu.directories:LostFiles",
    },
)

__all__ = ["MENU", "Fault"]
