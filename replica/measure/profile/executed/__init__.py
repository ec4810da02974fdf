"""Counts of the operations that a framework executed, in addition to those that the rules count."""

from aiperf.registry import Registry
from replica.measure.profile.executed.contract import Count, Executed
from replica.measure.profile.settings import ProfileSettings

COUNTS: Registry[Count] = Registry(
    "count",
    {
        "xla": "replica.measure.profile.executed.xla:count",
        "tensorflow": "replica.measure.profile.executed.tensorflow:count",
        "torch": "replica.measure.profile.executed.torch:count",
    },
)


def choose_count(settings: ProfileSettings) -> str:
    """The name of the count for a profile: XLA's if XLA compiles the step."""
    return "xla" if settings.xla or settings.framework == "jax" else settings.framework


__all__ = ["COUNTS", "Count", "Executed", "choose_count"]
