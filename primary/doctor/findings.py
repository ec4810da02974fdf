"""A finding of the doctor: a check, its status, what was found, and what to type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "failed", "not examined"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; the remedy of one that is ok is empty."""

    check: str
    status: Status
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """A finding about one replica, before equal ones are put together."""

    replica: int
    status: Status
    found: str
    remedy: str = ""


def together(check: str, said: Iterable[Said]) -> list[Finding]:
    """A finding for each different text, with the replicas that it is about; failed ones first."""
    groups: dict[tuple[Status, str, str], list[int]] = {}
    for item in said:
        groups.setdefault((item.status, item.found, item.remedy), []).append(item.replica)
    order: tuple[Status, ...] = ("failed", "warning", "not examined", "ok")
    return [
        Finding(check, status, f"{replicas_in_words(replicas)}: {found}", remedy)
        for (status, found, remedy), replicas in sorted(groups.items(), key=lambda item: order.index(item[0][0]))
    ]


def replicas_in_words(replicas: Iterable[int]) -> str:
    """Numbers as ranges: "replica 3", "replicas 0-2, 5"."""
    numbers = sorted(replicas)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"replica{'s' if len(numbers) > 1 else ''} {text}"
