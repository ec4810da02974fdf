"""Active multiprocessors and tensor cores of NVIDIA's GPUs, as NVIDIA's DCGM measures them.

NVML has no such counters: its use says that any kernel ran. DCGM's own program is asked
(`dcgmi dmon`), which needs its host engine on the node. Both are there or not; nothing is started.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from aiperf.answers import ask_and_wait
from aiperf.machine.vendors import Fields
from aiperf.machine.vendors.contract import number, text

log = logging.getLogger(__name__)

PROGRAM = "dcgmi"

ACTIVE: Mapping[str, str] = {"1002": "DCGM_FI_PROF_SM_ACTIVE", "1004": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"}
"""Fields by their numbers (dcgm_fields.h): shares of cycles, from 0 to 1."""

EVERY_MS, ROWS = 200, 2
"""Rows that are asked for: the first one after a while without a question may have no value."""

MOST_S = 3.0

_GPU = re.compile(r"\|\s*(\d+)\s*\|")
_UUID = re.compile(r"Device UUID:\s*(\S+)")


class Dcgm:
    """The activity of each GPU by its UUID. Once the program fails it is not asked again."""

    def __init__(self) -> None:
        self._uuids: dict[str, str] | None = None

    def __call__(self) -> Fields:
        """`dcgm`: the fields of each GPU; empty without DCGM."""
        if self._uuids is None:
            self._uuids = uuids_in(self._ask("discovery", "-l"))
        if not self._uuids:
            return {}
        shown = self._ask("dmon", "-e", ",".join(ACTIVE), "-d", str(EVERY_MS), "-c", str(ROWS))
        found = activity_in(shown)
        known = [{"uuid": self._uuids[gpu], **fields} for gpu, fields in found.items() if gpu in self._uuids]
        return {"dcgm": known} if known else {}

    def _ask(self, *words: str) -> str:
        answer = ask_and_wait((PROGRAM, *words), MOST_S)
        if answer.fine:
            return answer.output
        self._uuids = {}
        if not answer.missing:
            log.info("DCGM is not asked again: %s", answer.reason)
        return ""


def uuids_in(shown: str) -> dict[str, str]:
    """The UUID of each GPU by DCGM's number for it, in what `dcgmi discovery -l` prints."""
    found, gpu = dict[str, str](), ""
    for line in shown.splitlines():
        begins = _GPU.match(line)
        gpu = begins[1] if begins else gpu
        if gpu and (uuid := _UUID.search(line)):
            found[gpu] = text(uuid[1])
    return found


def activity_in(shown: str) -> dict[str, Fields]:
    """The last values of each GPU in what `dcgmi dmon` prints for the fields of `ACTIVE`.

    Slices of GPUs and values that are not there are left out.
    """
    found: dict[str, Fields] = {}
    for line in shown.splitlines():
        words = line.split()
        if len(words) != 2 + len(ACTIVE) or words[0] != "GPU" or not words[1].isdecimal():
            continue
        for name, word in zip(ACTIVE.values(), words[2:], strict=True):
            value = number(float(word), 1.0) if re.fullmatch(r"\d\.\d+|[01]", word, re.ASCII) else None
            if value is not None:
                found.setdefault(words[1], {})[name] = value
    return found
