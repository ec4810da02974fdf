"""An agent's report on the micro suite of its node."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of the micro suite on a node: the SHA-256 of its file, or why there is none."""

    digest: str | None = None
    problem: str | None = None
