"""SLURM's compact host lists, such as `gpu[01-03,7],login`, as pure functions."""

import re
from collections.abc import Iterable

from aiperf.errors import UsageError
from aiperf.untrusted.text import shown

MAX_HOSTS = 65_536
"""Most hosts of a list, more than any cluster has: it bounds the cost of a typing error."""


MAX_CHARACTERS = 2**22
MAX_BRACKETS = 8


def expand(text: str) -> tuple[str, ...]:
    """The host names that a host list stands for, in order.

    Raises UsageError if brackets do not pair, a range is not valid, or the list is too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"host list {shown(text)}: {len(text)} characters; the limit is {MAX_CHARACTERS}")
    hosts: list[str] = []
    for part in _split(text):
        hosts += _expand_part(part, text)
        if len(hosts) > MAX_HOSTS:
            raise _too_many(text)
    return tuple(hosts)


def _too_many(text: str) -> UsageError:
    return UsageError(f"host list {shown(text)} names too many hosts; the limit is {MAX_HOSTS}")


def _split(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth not in (0, 1):
            raise UsageError(f"host list {shown(text)}: brackets do not pair")
        if character == "," and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
    if depth != 0:
        raise UsageError(f"host list {shown(text)}: brackets do not pair")
    return [part.strip() for part in [*parts, text[begin:]] if part.strip()]


def _expand_part(part: str, text: str) -> list[str]:
    opening = part.find("[")
    if opening < 0:
        return [part]
    closing = part.index("]", opening)
    head, inside, tail = part[:opening], part[opening + 1 : closing], part[closing + 1 :]
    if part.count("[") > MAX_BRACKETS:
        raise UsageError(f"host list {shown(text)}: more than {MAX_BRACKETS} brackets in a name")
    rests = _expand_part(tail, text) if tail else [""]
    found: list[str] = []
    for piece in inside.split(","):
        numbers = _expand_range(piece.strip(), text)
        # Before the product is made: a few brackets can name more hosts than memory holds.
        if len(found) + len(numbers) * len(rests) > MAX_HOSTS:
            raise _too_many(text)
        found += [head + number + rest for number in numbers for rest in rests]
    return found


def _expand_range(piece: str, text: str) -> list[str]:
    match = re.fullmatch(r"(\d{1,20})(?:-(\d{1,20}))?", piece, re.ASCII)
    if match is None:
        raise UsageError(f"host list {shown(text)}: {shown(piece)} is neither a number nor a range such as 01-16")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first) or int(last) - int(first) >= MAX_HOSTS:
        raise UsageError(f"host list {shown(text)}: {shown(piece)} is not a range such as 01-16")
    # SLURM pads to the width of the first number: 08-11 is 08, 09, 10, 11.
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def compact(hosts: Iterable[str]) -> str:
    """The shortest host list of these names that has at most one bracket a name; each name once.

    Only the last number of a name is put into ranges, as `scontrol show hostlist` does.
    """
    groups: dict[tuple[str, int, str], list[int]] = {}
    alone: list[str] = []
    for host in dict.fromkeys(hosts):
        # A tail without digits leaves the last number to the middle group.
        match = re.fullmatch(r"(.*?)(\d{1,20})(\D*)", host, re.ASCII)
        if match is None:
            alone.append(host)
        else:
            # By the width, too: n1 and n01 are different names.
            groups.setdefault((match[1], len(match[2]), match[3]), []).append(int(match[2]))
    return ",".join(alone + [_bracket(*key, sorted(numbers)) for key, numbers in groups.items()])


def without(hosts: Iterable[str], excluded: str | None) -> tuple[str, ...]:
    """The hosts that a host list does not name. Raises UsageError as `expand`."""
    names = frozenset(expand(excluded or ""))
    return tuple(host for host in hosts if host not in names)


def _bracket(head: str, width: int, tail: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{head}{numbers[0]:0{width}}{tail}"
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    pieces = (f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in spans)
    return f"{head}[{','.join(pieces)}]{tail}"
