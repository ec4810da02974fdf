"""Tuners by name (`search.hpo`): the place to register a new one."""

from __future__ import annotations

from aiperf.registry import Registry
from replica.search.tuners.contract import Tuner

TUNERS: Registry[Tuner] = Registry(
    "tuner",
    {
        "tpe": "replica.search.tuners.tpe:suggest",
        "random": "replica.search.tuners.random:suggest",
        "unguided": "replica.search.tuners.unguided:suggest",
    },
)

UNTAUGHT = frozenset({"unguided"})
"""Tuners that need not be shown what was tried: they are only told what fits."""

__all__ = ["TUNERS", "UNTAUGHT"]
