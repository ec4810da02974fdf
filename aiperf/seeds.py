"""One seed for a run; every other random stream is folded from it."""

import hashlib

SEED_BITS = 31
"""Seeds fit a signed 32-bit integer, which every library takes."""


def fold_seed(seed: int, purpose: str, trial: int, replica: int) -> int:
    """A seed for one purpose of one trial of one replica, the same on any node."""
    text = f"{seed}/{purpose}/{trial}/{replica}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) >> (64 - SEED_BITS)
