"""XID events: errors that NVIDIA's driver reports of a GPU, by the event sets of NVML."""

from __future__ import annotations

from typing import Any

import pynvml

from aiperf.machine.vendors import Fields
from aiperf.machine.vendors.contract import MOST_CARDS, asked, number, text

MOST_EVENTS = 100
"""Events of one sample. A GPU in a bad way may report without end."""


class Xids:
    """XIDs since the last sample.

    NVML stays open from the first sample to the end of the process: an event set hears only of what
    happens after it was made.
    """

    def __init__(self) -> None:
        self._set: Any = None
        self._known = False

    def __call__(self) -> Fields:
        """A list of the number and the GPU's UUID of each event; empty without any.

        `xids_heard` says on a node with GPUs that events would be there.
        """
        if not self._known:
            self._known, self._set = True, asked(self._listen)
        if self._set is None:
            return {}
        found: list[Fields] = []
        while len(found) < MOST_EVENTS and (event := asked(pynvml.nvmlEventSetWait_v2, self._set, 0)) is not None:
            code = number(event.eventData)
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError and code is not None:
                found.append({"xid": int(code), "uuid": text(asked(pynvml.nvmlDeviceGetUUID, event.device))})
        return {"xids_heard": 1} | ({"xids": found} if found else {})

    @staticmethod
    def _listen() -> Any:
        """An event set of all GPUs that have such events. Raises an error of NVML without any."""
        pynvml.nvmlInit()
        events = pynvml.nvmlEventSetCreate()
        count = int(number(pynvml.nvmlDeviceGetCount(), MOST_CARDS) or 0)
        kind = pynvml.nvmlEventTypeXidCriticalError
        heard = 0
        for index in range(count):
            handle = asked(pynvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None and asked(_register, handle, kind, events):
                heard += 1
        return events if heard else None


def _register(handle: Any, kind: int, events: Any) -> bool:
    pynvml.nvmlDeviceRegisterEvents(handle, kind, events)
    return True
