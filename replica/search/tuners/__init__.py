"""Tuners by name (`search.hpo`): the place to register a new one."""

from __future__ import annotations

from aiperf.registry import Registry
from replica.search.tuners.contract import Tuner

TUNERS: Registry[Tuner] = Registry(
    "tuner",
    {
        "tpe": "replica.search.tuners.tpe:suggest",
        "random": "replica.search.tuners.random:suggest",
    },
)

__all__ = ["TUNERS"]
