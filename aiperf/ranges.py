"""Ranges of the numbers and lengths of the names in records and messages.

What no run can reach is refused where it is read: sums and products of numbers in these ranges are
finite, and loops over them end.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

LONGEST_MS = 1000 * 3_600_000
"""Longest run. Its timeline has 10,000 points."""

LAST_MS = 32_503_680_000_000
"""The year 3000."""

LAST_TRIAL = 10**9

Number = Annotated[int, Meta(ge=0, le=10**6)]
"""Number of a replica, a round, an epoch, or anything else of which there are few."""

Trial = Annotated[int, Meta(ge=0, le=LAST_TRIAL)]

Many = Annotated[int, Meta(ge=0, le=10**15)]
"""Exact as a float."""

Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]

Whole = Annotated[int, Meta(ge=1 - 10**18, le=10**18 - 1)]
"""Any other whole number: it fits into 64 bits."""

Duration = Annotated[int, Meta(ge=0, le=LONGEST_MS)]
"""Milliseconds."""

Seconds = Annotated[float, Meta(ge=0, le=LONGEST_MS / 1000)]

Moment = Annotated[int, Meta(ge=0, le=LAST_MS)]
"""Milliseconds since 1970."""

Offset = Annotated[int, Meta(ge=-LAST_MS, le=LAST_MS)]
"""Milliseconds between two clocks, or of a clock that may begin anywhere."""

Name = Annotated[str, Meta(max_length=200)]

Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
"""SHA-256 as hex digits."""
