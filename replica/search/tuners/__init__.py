"""Tuners by name (`search.hpo`): the place to register a new one."""

from aiperf.registry import Registry
from replica.search.tuners.contract import Tuner

TUNERS: Registry[Tuner] = Registry(
    "tuner",
    {
        "tpe": "replica.search.tuners.tpe:suggest",
        "random": "replica.search.tuners.tpe:suggest_at_random",
        "unguided": "replica.search.tuners.unguided:suggest",
    },
)

UNTAUGHT = frozenset({"unguided"})
"""Tuners that do not look at earlier results: they need only know which suggestions fit."""

__all__ = ["TUNERS", "UNTAUGHT"]
