"""Draws of an audit: the epochs to look at, unknown until the nonce is named.

A claim is a completed epoch of a trial with the operations that it claims. Claims are in the order
of trial, then epoch. Draw number k, from 1, takes the SHA-256 of the text

    HEAD "\\n" NONCE "\\n" k

(UTF-8; k in decimal digits) as a big-endian number, modulo the sum of the operations of all claims
that are not drawn yet: the place of the draw. Claims that are not drawn yet are laid end to end,
each as long as its operations; the one at that place is drawn. HEAD is the head of the whole run
(`aiperf.records.run_head`).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class Claim:
    """A completed epoch of a trial, and the operations that it adds to the score."""

    trial: int
    epoch: int
    operations: int


def draw(claims: Iterable[Claim], head: str, nonce: str, count: int) -> list[Claim]:
    """The first `count` draws, or all claims with operations if they are fewer."""
    # Sorted, so that both sides draw the same claims, in whatever order they read the records.
    left = sorted(claim for claim in claims if claim.operations > 0)
    drawn: list[Claim] = []
    while left and len(drawn) < count:
        # A hash has 256 bits, the sum about 70: modulo prefers no claim by more than 2^-180.
        place = place_of(head, nonce, len(drawn) + 1) % sum(claim.operations for claim in left)
        for claim in left:
            if place < claim.operations:
                break
            place -= claim.operations
        # Without replacement: a large claim is looked at once.
        left.remove(claim)
        drawn.append(claim)
    return drawn


def place_of(head: str, nonce: str, number: int) -> int:
    """The place of a draw, before it is reduced to the operations that are left."""
    return int.from_bytes(hashlib.sha256(f"{head}\n{nonce}\n{number}".encode()).digest())


def power(draws: int, forged: float) -> float:
    """The probability that at least one of the draws falls on a forged share of the operations.

    1 - (1 - p)^n for draws with replacement; without, it is at least as large.
    """
    return 1 - (1 - forged) ** draws


def power_line(draws: int, forged: float = 0.3) -> str:
    """The power of an audit in words."""
    return (
        f"{draws} {'draw finds' if draws == 1 else 'draws find'} a run in which {forged:.0%} of the operations "
        f"were not done with probability {power(draws, forged):.0%}"
    ).replace("%", " %")
