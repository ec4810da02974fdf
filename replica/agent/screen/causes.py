"""Facts about devices while they are measured, which may explain a low rate."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from aiperf.clock import Clock
from aiperf.host import this_host
from aiperf.machine.accelerators import AcceleratorSamples
from aiperf.machine.health import held_by_quota_s
from aiperf.screening.judgement import DCGM
from replica.agent.screen.devices import Device

SAMPLE_S = 0.5
"""Seconds between two samples of the accelerators."""


class Watch:
    """What the kernel counts and the drivers report while devices are measured."""

    def __init__(self, clock: Clock, devices: tuple[Device, ...]) -> None:
        self._clock, self._devices = clock, devices
        self._read = AcceleratorSamples()
        self._samples: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._throttled, self._load = held_by_quota_s(), this_host().load()
        self._began_s = clock.monotonic_s()

    async def sample(self) -> None:
        """Sample the accelerators until this is cancelled."""
        while any(device.index is not None for device in self._devices):
            for found in (await asyncio.to_thread(self._read)).get("accelerators", []):
                for field in DCGM.keys() & found.keys():
                    self._samples[found["index"]][DCGM[field]].append(found[field])
            await self._clock.sleep(SAMPLE_S)

    def facts(self) -> dict[str, dict[str, float]]:
        """Facts by device, by the names of `aiperf.screening.judgement.FACTS`."""
        return {device.name: dict(self._facts(device)) for device in self._devices}

    def _facts(self, device: Device) -> Iterator[tuple[str, float]]:
        if device.index is not None:
            for name, values in self._samples[device.index].items():
                yield name, max(values) if name == "temperature" else median(values)
            return
        wall_s = max(1e-9, self._clock.monotonic_s() - self._began_s)
        yield "held_by_quota", (held_by_quota_s() - self._throttled) / wall_s
        yield "load_before", self._load / device.cpus
