"""Operations that a framework executed, by what can tell: next to those that the rules count."""

from __future__ import annotations

from aiperf.registry import Registry
from replica.profile.executed.contract import Count, Executed
from replica.profile.settings import ProfileSettings

COUNTS: Registry[Count] = Registry(
    "count",
    {
        "xla": "replica.profile.executed.xla:count",
        "tensorflow": "replica.profile.executed.tensorflow:count",
        "torch": "replica.profile.executed.torch:count",
    },
)


def choose_count(settings: ProfileSettings) -> str:
    """The name of the count for a profile: XLA's wherever it compiles the step."""
    return "xla" if settings.xla or settings.framework == "jax" else settings.framework


__all__ = ["COUNTS", "Count", "Executed", "choose_count"]
