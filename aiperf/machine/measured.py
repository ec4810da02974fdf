"""What a replica reports of the micro suite on its node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """What an agent reports of its node: the SHA-256 of its file, and why it has no results."""

    digest: str | None = None
    problem: str | None = None
