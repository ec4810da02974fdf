"""The section of a configuration about the micro suite on the nodes of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from aiperf.config.sections.base import Duration, Listed, Section


class MicroSection(Section):
    """The micro suite on every node, before the release of the replicas."""

    suite: Literal["none", "quick", "full"] = "none"
    """`quick` or `full`: one replica of each node measures it before the run begins
    ([micro.md](micro.md)). None of this is in the run's time; what fails costs a warning."""
    stack: Literal["tensorflow", "torch", "jax", "native"] | None = None
    """Software that is measured; default: `training.framework`."""
    operators: Annotated[tuple[Literal["conv", "pool", "fc"], ...], Listed, Field(min_length=1, max_length=3)] = (
        "conv",
        "pool",
        "fc",
    )
    """Operators that are measured, next to the ceilings `gemm` and `triad`."""
    time_limit: Duration = Field(600.0, le=86_400)
    """Longest time of the suite; `run.start_timeout` is longer by it."""
