"""A primary among those of its run: for names outside the run directory that outlive it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.run_directory.claim import CLAIM_NAME
from aiperf.run_directory.disk import Disk
from aiperf.run_directory.holder import parse_holder

TOKEN_LENGTH = 8


@dataclass(frozen=True, slots=True)
class PrimaryIdentity:
    """A primary of a run, or another process that starts replicas, such as the doctor."""

    run: str = field(default_factory=lambda: secrets.token_hex(TOKEN_LENGTH // 2))
    """Token that all primaries of a run share, and no primary of another run has."""
    number: int = 1
    """Number of its claim: later primaries of the run have higher ones."""

    def __str__(self) -> str:
        return f"{self.run}-{self.number}"


def identity_of(claims: Path, number: int) -> PrimaryIdentity:
    """The identity of the primary whose claim has this number.

    A run is known by the token of its first claim, which no primary removes. If it cannot be read,
    the run has another name: what earlier primaries have left is not found then.
    """
    disk = Disk()
    try:
        found = disk.read(claims / min(filter(CLAIM_NAME.fullmatch, disk.names(claims)), key=_number_in))
    except (OSError, ValueError):
        found = None
    token = parse_holder(found[0]).token[:TOKEN_LENGTH] if found is not None else ""
    return PrimaryIdentity(token, number) if token.isalnum() else PrimaryIdentity(number=number)


def _number_in(name: str) -> int:
    return int(name.partition(".")[0])
