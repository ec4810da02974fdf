"""SLURM's compact host lists, such as `gpu[01-03,7],login`, as pure functions."""

from __future__ import annotations

import re

from aiperf.errors import UsageError

MAX_HOSTS = 65_536
"""Limit of a list, above the size of any cluster: it bounds the cost of a typing error."""


def expand(text: str) -> tuple[str, ...]:
    """The host names that a host list stands for, in order.

    Raises UsageError if brackets do not pair, a range is not valid, or the list is too long.
    """
    hosts = [host for part in _split(text) for host in _expand_part(part, text)]
    if len(hosts) > MAX_HOSTS:
        raise UsageError(f"host list {text[:80]!r} names {len(hosts)} hosts; the limit is {MAX_HOSTS}")
    return tuple(hosts)


def _split(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth not in (0, 1):
            raise UsageError(f"host list {text!r}: brackets do not pair")
        if character == "," and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
    if depth != 0:
        raise UsageError(f"host list {text!r}: brackets do not pair")
    return [part.strip() for part in [*parts, text[begin:]] if part.strip()]


def _expand_part(part: str, text: str) -> list[str]:
    opening = part.find("[")
    if opening < 0:
        return [part]
    closing = part.index("]", opening)
    head, inside, tail = part[:opening], part[opening + 1 : closing], part[closing + 1 :]
    return [
        head + number + rest
        for piece in inside.split(",")
        for number in _expand_range(piece.strip(), text)
        for rest in (_expand_part(tail, text) if tail else [""])
    ]


def _expand_range(piece: str, text: str) -> list[str]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", piece)
    if match is None:
        raise UsageError(f"host list {text!r}: {piece!r} is neither a number nor a range such as 01-16")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first) or int(last) - int(first) >= MAX_HOSTS:
        raise UsageError(f"host list {text!r}: {piece!r} is not a range such as 01-16")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
