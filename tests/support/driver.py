"""A stand-in for NVIDIA's driver: a node with GPUs, seen through the management library."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from tests.support.folders import ROOT
from tests.support.machines import card_address

SITE = "from tests.support.driver import FakeDriver\nFakeDriver().install(setattr)\n"


class FakeDriver:
    """NVIDIA's library on a node with GPUs that do not support the temperature."""

    name = "Fake H200"

    def __init__(self, gpus: int = 1, slices: tuple[int, ...] = (), exclusive: bool = False) -> None:
        """`slices`: the memory of each slice of a GPU, in GiB; without any, GPUs are whole.

        `exclusive`: one process at a time may use a GPU.
        """
        self._gpus = gpus
        self._slices = slices
        self._mode = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if exclusive else pynvml.NVML_COMPUTEMODE_DEFAULT

    def install(self, patch: Callable[[object, str, object], None]) -> None:
        """Put the answers in place of the library's; `patch` is `setattr`, or a test's own."""
        answers: dict[str, Any] = {
            "Init": None,
            "Shutdown": None,
            "DeviceGetCount": self._gpus,
            "DeviceGetUUID": b"GPU-1",
            "DeviceGetUtilizationRates": type("U", (), {"gpu": 87, "memory": 40}),
            "DeviceGetMemoryInfo": type("M", (), {"used": 2**30, "total": 2**32}),
            "DeviceGetPowerUsage": 250_500,
            "DeviceGetTotalEnergyConsumption": 12_000_000,
            "DeviceGetClockInfo": 1410,
            "SystemGetDriverVersion": b"570.1",
            "DeviceGetName": self.name.encode(),
            "DeviceGetCudaComputeCapability": (9, 0),
            "DeviceGetIndex": 0,
            "DeviceGetComputeMode": self._mode,
        }
        for name, answer in answers.items():
            patch(pynvml, f"nvml{name}", lambda *_, answer=answer: answer)
        patch(pynvml, "nvmlDeviceGetTemperature", self._not_supported)
        patch(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: f"{index}")
        patch(pynvml, "nvmlDeviceGetPciInfo", self._place)
        patch(pynvml, "nvmlDeviceGetHandleByUUID", self._by_uuid)
        patch(pynvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", lambda part: part.partition("-")[0])
        if not self._slices:
            patch(pynvml, "nvmlDeviceGetMigMode", self._not_supported)
            return
        patch(pynvml, "nvmlDeviceGetMigMode", lambda gpu: [1, 1])
        patch(pynvml, "nvmlDeviceGetMaxMigDeviceCount", lambda gpu: 7)
        patch(pynvml, "nvmlDeviceGetMigDeviceHandleByIndex", self._slice)
        patch(pynvml, "nvmlDeviceGetUUID", lambda part: f"MIG-{part}")
        patch(pynvml, "nvmlDeviceGetMemoryInfo", self._memory)

    @staticmethod
    def _by_uuid(word: str) -> str:
        """The container of a job knows slices by their names alone, which end in their memory."""
        if "no-such" in word:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return word.removeprefix("MIG-") if word[4:5].isdigit() else word

    @staticmethod
    def _place(gpu: str) -> object:
        """The PCI address as NVIDIA's library writes it, of the card that `card_address` names."""
        domain, _, place = card_address(int(gpu.partition("-")[0])).partition(":")
        return type("P", (), {"busId": f"{domain:0>8}:{place.upper()}".encode()})

    def _slice(self, gpu: str, place: int) -> str:
        if place >= len(self._slices):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return f"{gpu}-{place}"

    def _memory(self, part: str) -> object:
        gibibytes = self._slices[int(part.split("-")[1])] if "-" in part else 80
        return type("M", (), {"used": 2**30, "total": gibibytes * 2**30})

    @staticmethod
    def remove(patch: Callable[[object, str, object], None]) -> None:
        """Make a node without the driver, whatever this machine has."""

        def missing(*_: object) -> None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

        patch(pynvml, "nvmlInit", missing)

    @staticmethod
    def _not_supported(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def environment_with_driver(folder: Path) -> dict[str, str]:
    """The environment in which every Python finds the stand-in, which `folder` is written for."""
    (folder / "sitecustomize.py").write_text(SITE)
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**kept, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")))}
