"""One suite for all makers of accelerators, each on a node with two of its own."""

import errno
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pynvml
import pytest

from aiperf.machine.accelerators import find_accelerators, invisible_reason, node_accelerators, visible_devices
from aiperf.machine.node import describe_node
from aiperf.machine.vendors import VENDORS, Vendor, vendor_of_node
from aiperf.machine.vendors.amd import Amd
from aiperf.machine.vendors.contract import Once
from aiperf.machine.vendors.kernel import Kernel
from aiperf.machine.vendors.nvidia import FIELDS, Nvidia
from aiperf.rules.devices import find_device
from tests.support.driver import FakeDriver
from tests.support.machines import card_address

Install = Callable[[pytest.MonkeyPatch, Path], None]


def nvidia(patch: pytest.MonkeyPatch, root: Path) -> None:
    FakeDriver(gpus=2).install(patch.setattr)
    for number in (0, 1):
        (root / f"proc/driver/nvidia/gpus/0000:0{number}:00.0").mkdir(parents=True)


class FakeAmdSmi(ModuleType):
    """AMD SMI's package on a node with two MI300X and the small GPU of its CPU."""

    AmdSmiTemperatureType = type("Type", (), {"HOTSPOT": 1})
    AmdSmiTemperatureMetric = type("Metric", (), {"CURRENT": 0})
    AmdSmiClkType = type("Clk", (), {"GFX": 0, "MEM": 4})
    memory: ClassVar[dict[str, int]] = {"a": 196_592, "b": 196_592, "part of the CPU": 512}

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "init": None,
            "shut_down": None,
            "get_processor_handles": list(self.memory),
            "get_gpu_driver_info": {"driver_version": "6.10.5"},
            "get_gpu_device_uuid": "9fff74b5-0000-1000-80a1",
            "get_gpu_asic_info": {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"},
            "get_gpu_activity": {"gfx_activity": 87, "umc_activity": 40, "mm_activity": "N/A"},
            "get_power_info": {"current_socket_power": 250, "average_socket_power": "N/A"},
            "get_energy_count": {"energy_accumulator": 800_000_000, "counter_resolution": 15.3},
            "get_clock_info": {"clk": 1410},
        }
        question = name.removeprefix("amdsmi_")
        if question == "get_gpu_vram_usage":
            return lambda gpu: {"vram_total": self.memory[gpu], "vram_used": 1024}
        if question == "get_gpu_device_bdf":
            return lambda gpu: card_address([*self.memory].index(gpu)).upper()
        if question not in answers:
            raise AttributeError(name)
        return lambda *_: answers[question]


def amd(patch: pytest.MonkeyPatch, root: Path) -> None:
    patch.setitem(sys.modules, "amdsmi", FakeAmdSmi("amdsmi"))
    for number, units in enumerate((0, 1216, 1216)):
        node = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 0\nsimd_count {units}\nmem_banks_count 1\n")


def kernel(patch: pytest.MonkeyPatch, root: Path) -> None:
    patch.setattr(Kernel, "root", root)
    screen, part_of_the_cpu = {"vendor": "0x1a03", "device": "0x2000"}, {"vendor": "0x8086", "device": "0x4680"}
    maximum = {
        "vendor": "0x8086",
        "device": "0x0bd5",
        "hwmon/hwmon3/energy1_input": "12000000",
        "hwmon/hwmon3/temp1_label": "pkg",
    }
    for number, files in enumerate((screen, maximum, part_of_the_cpu, maximum)):
        card, place = root / f"sys/class/drm/card{number}", root / f"sys/bus/pci/devices/{card_address(number)}"
        card.mkdir(parents=True)
        place.mkdir(parents=True)
        (card / "device").symlink_to(place)
        for name, text in files.items():
            file = root / f"sys/class/drm/card{number}/device" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
    (root / "sys/class/drm/card1-DP-1").mkdir()


NODES: dict[str, Install] = {"nvidia": nvidia, "amd": amd, "kernel": kernel}

ADDRESSES = {"Nvidia": (0, 1), "Amd": (0, 1), "Kernel": (1, 3)}

MILLIJOULES = {"Nvidia": 12e6, "Amd": 800e6 * 15.3 / 1000, "Kernel": 12e3}
"""Energy that their drivers have counted."""


@pytest.fixture(params=NODES)
def vendor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Vendor:
    monkeypatch.setattr(Kernel, "root", tmp_path)
    FakeDriver.remove(monkeypatch.setattr)
    NODES[request.param](monkeypatch, tmp_path)
    return VENDORS.load(request.param)


def test_every_vendor_has_a_node_here() -> None:
    assert set(NODES) == set(VENDORS)


def test_it_is_found_with_its_accelerators(vendor: Vendor, tmp_path: Path) -> None:
    assert vendor_of_node() is vendor
    found = find_accelerators({})
    assert [each.index for each in found] == [0, 1]
    assert all(each.memory_bytes > 0 for each in found)
    assert {each.precision for each in found} == {"mixed_bfloat16"}
    assert all(find_device(each.name) for each in found), "its peak is known"
    assert [each.address for each in found] == [*map(card_address, ADDRESSES[vendor.__name__])]  # type: ignore[attr-defined]
    assert node_accelerators(tmp_path) == 2


def test_a_process_that_is_given_some_sees_these(vendor: Vendor) -> None:
    found = find_accelerators({})
    for own in (found, found[:1], found[1:], found[::-1]):
        assert find_accelerators(visible_devices(own)) == own
    assert visible_devices(()) == {}


def test_all_can_be_hidden_as_the_complaint_says(vendor: Vendor) -> None:
    complaint = invisible_reason("torch 2.9.0, keras 3.15.0", 0, {}) or ""
    assert complaint.startswith(f"the driver shows 2 GPUs ({find_accelerators({})[0].name}), torch 2.9.0 sees none")
    remedy = complaint.rpartition("export ")[2]
    hidden = dict(setting.replace("''", "").split("=", 1) for setting in remedy.split())
    assert find_accelerators(hidden) == ()
    assert invisible_reason("torch", 0, hidden) is None
    assert invisible_reason("torch", 2, {}) is None


def test_samples_have_the_names_and_units_of_dcgm(vendor: Vendor) -> None:
    samples = vendor.sample()
    assert [sample.pop("index") for sample in samples] == [0, 1]
    for sample in samples:
        assert sample.keys() <= FIELDS.keys()
        assert sample["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == pytest.approx(MILLIJOULES[vendor.__name__])  # type: ignore[attr-defined]
        assert sample.get("DCGM_FI_DEV_POWER_USAGE", 250) == pytest.approx(250, abs=1)


def test_a_question_is_asked_once_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[str]()

    def counted(name: str, answer: Any) -> None:
        def ask(*_: object) -> Any:
            asked[name] += 1
            return answer

        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", ask)

    FakeDriver().install(monkeypatch.setattr)
    counted("RemappedRows", [3, 1, 0, 1])
    counted("MemoryInfo", SimpleNamespace(used=2**30, total=2**31))
    counted("UtilizationRates", SimpleNamespace(gpu=80, memory=40))
    (sample,) = Nvidia.sample()
    assert asked == {"RemappedRows": 1, "MemoryInfo": 1, "UtilizationRates": 1}
    assert [
        sample[f"DCGM_FI_DEV_{name}"]
        for name in (
            "CORRECTABLE_REMAPPED_ROWS",
            "UNCORRECTABLE_REMAPPED_ROWS",
            "ROW_REMAP_FAILURE",
            "FB_USED",
            "MEM_COPY_UTIL",
        )
    ] == [3, 1, 1, 1024, 40]
    Nvidia.sample()
    assert asked["RemappedRows"] == 2, "the next sample asks again"


def test_a_refusal_is_kept_like_an_answer() -> None:
    asked = list[tuple[object, ...]]()

    class Library(ModuleType):
        Kind = type("Kind", (), {"CLOCK": 1})
        LIMIT = 7

        @staticmethod
        def rows(*arguments: object) -> str:
            asked.append(arguments)
            if arguments == ("lost",):
                raise OSError("GPU is lost")
            return "rows"

    once = Once(Library("library"))
    for _ in range(2):
        with pytest.raises(OSError, match="GPU is lost"):
            once.rows("lost")
        assert once.rows("gpu", [5]) == "rows"
        assert once.rows("gpu", [6]) == "rows"
    assert asked == [("lost",), ("gpu", [5]), ("gpu", [6])]
    assert (once.Kind.CLOCK, once.LIMIT) == (1, 7)


def test_without_a_driver_there_is_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Kernel, "root", tmp_path)
    FakeDriver.remove(monkeypatch.setattr)
    for name in VENDORS:
        vendor = VENDORS.load(name)
        assert (vendor.accelerators(), vendor.sample(), vendor.installed(tmp_path)) == ((), [], 0)


WRONG: dict[str, Any] = {
    "exception": None,
    "text": "N/A",
    "none": None,
    "huge": 2**80,
    "endless": float("inf"),
    "nan": float("nan"),
    "negative": -1,
    "bytes": b"\xff\x00",
    "object": object(),
}


def broken(*_: object) -> Any:
    raise RuntimeError("the library is of another version")


def fit(vendor: Vendor, questions: str) -> None:
    """Whatever one answer is, the others are there, and all of it can be written as JSON."""
    for each in vendor.accelerators():
        assert 0 < each.memory_bytes < 1 << 51, questions
        assert each.name, questions
        assert each.precision in ("float32", "mixed_float16", "mixed_bfloat16")
    for sample in vendor.sample():
        json.loads(json.dumps(sample, allow_nan=False))
        assert all(isinstance(value, int | float | str) for value in sample.values()), questions
    json.dumps(describe_node(), allow_nan=False)


@pytest.mark.parametrize("wrong", WRONG)
def test_one_wrong_answer_of_nvml_costs_nothing_else(
    wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeDriver(gpus=2).install(monkeypatch.setattr)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", lambda *_: 40)
    whole = Nvidia.sample()
    names = [name for name in vars(pynvml) if name.startswith("nvmlDeviceGet") and name not in ("nvmlDeviceGetCount",)]
    for name in (*names, "nvmlSystemGetDriverVersion", "nvmlShutdown"):
        with monkeypatch.context() as patch:
            patch.setattr(pynvml, name, broken if wrong == "exception" else lambda *_: WRONG[wrong])
            fit(Nvidia, name)
            if name != "nvmlDeviceGetHandleByIndex":
                assert [each.index for each in Nvidia.accelerators()] == [0, 1], name
                found = Nvidia.sample()
                assert [each["index"] for each in found] == [0, 1], name
                assert all(len(whole[0]) - len(each) <= 2 for each in found), name
    with monkeypatch.context() as patch:
        patch.setattr(pynvml, "nvmlDeviceGetCount", broken if wrong == "exception" else lambda: WRONG[wrong])
        fit(Nvidia, "count")


@pytest.mark.parametrize("wrong", WRONG)
def test_one_wrong_answer_of_amd_smi_costs_nothing_else(
    wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeDriver.remove(monkeypatch.setattr)
    monkeypatch.setattr(Kernel, "root", tmp_path)
    amd(monkeypatch, tmp_path)
    smi = sys.modules["amdsmi"]
    questions = (
        "asic_info",
        "driver_info",
        "device_uuid",
        "activity",
        "power_info",
        "energy_count",
        "clock_info",
        "vram_usage",
    )
    names = [
        f"amdsmi_get_{'' if part in ('power_info', 'energy_count', 'clock_info') else 'gpu_'}{part}"
        for part in questions
    ]
    for name in names:
        answers = getattr(smi, name)("a")
        cases = [WRONG[wrong], *({**answers, key: WRONG[wrong]} for key in answers if isinstance(answers, dict))]
        for case in cases:
            with monkeypatch.context() as patch:
                patch.setitem(smi.__dict__, name, broken if wrong == "exception" else lambda *_, case=case: case)
                fit(Amd, name)
                assert [each.index for each in Amd.accelerators()][:2] == [0, 1], (name, case)
    with monkeypatch.context() as patch:
        patch.setitem(smi.__dict__, "amdsmi_get_processor_handles", lambda: WRONG[wrong])
        fit(Amd, "handles")


@pytest.mark.parametrize("wrong", ["", "N/A", "-1", "9" * 500, "²", "\x00", "1e400"])
def test_one_wrong_file_of_the_kernel_costs_nothing_else(
    wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeDriver.remove(monkeypatch.setattr)
    kernel(monkeypatch, tmp_path)
    card = tmp_path / "sys/class/drm/card1/device"
    for file in ("hwmon/hwmon3/energy1_input", "mem_info_vram_total", "driver/module/version", "gpu_busy_percent"):
        (card / file).parent.mkdir(parents=True, exist_ok=True)
        (card / file).write_text(wrong)
        fit(Kernel, file)
        assert [each.index for each in Kernel.accelerators()] == [0, 1]


PLACES = {"a": "0000:83:00.0", "b": "0000:03:00.0", "part of the CPU": "0000:c3:00.0"}


class PlacedAmdSmi(FakeAmdSmi):
    """One that knows the GPUs' places."""

    @staticmethod
    def amdsmi_get_gpu_device_bdf(gpu: str) -> str:
        return PLACES[gpu]

    @staticmethod
    def amdsmi_get_gpu_asic_info(gpu: str) -> dict[str, str]:
        return {"asic_serial": gpu}


def node_of_amd(root: Path, order: str) -> None:
    """Files of a node with the GPUs "a" and "b", and "i" that is part of the CPU, in the order in
    which the compute driver has them.
    """
    for number, letter in enumerate(" " + order):
        node = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        bus = {"a": 0x83, "b": 0x03, "i": 0xC3}.get(letter, 0)
        units = f"simd_count {64 if bus else 0}\nlocation_id {bus << 8}\n"
        (node / "properties").write_text(f"{units}domain 0\ndrm_render_minor {128 + number if bus else 0}\n")
        if not bus:
            continue
        device, card = root / f"sys/devices/pci/0000:{bus:02x}:00.0", root / f"sys/class/drm/card{number}"
        (device / f"drm/renderD{128 + number}").mkdir(parents=True)
        for name, text in {"vendor": "0x1002", "mem_info_vram_total": 2**29 if letter == "i" else 2**36}.items():
            (device / name).write_text(f"{text}\n")
        (device / "unique_id").write_text(f"{letter}\n")
        card.mkdir(parents=True)
        (card / "device").symlink_to(device)
        file = root / f"dev/dri/renderD{128 + number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


@pytest.mark.parametrize("smi", [True, False])
@pytest.mark.parametrize("order", ["iab", "ab", "bia", "bai"])
def test_gpus_of_amd_have_the_numbers_of_its_runtime(
    smi: bool, order: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeDriver.remove(monkeypatch.setattr)
    node_of_amd(tmp_path, order)
    for vendor in (Amd, Kernel):
        monkeypatch.setattr(vendor, "root", tmp_path)
    monkeypatch.setitem(sys.modules, "amdsmi", PlacedAmdSmi("amdsmi") if smi else None)
    found_vendor = vendor_of_node()
    assert found_vendor is (Amd if smi else Kernel)
    expected = sorted((order.index(letter), f"GPU-{letter}") for letter in "ab")
    found = find_accelerators({})
    assert [(gpu.index, gpu.uuid) for gpu in found] == expected
    assert [sample["index"] for sample in found_vendor.sample()] == [number for number, _ in expected]
    runtime, hip = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
    for gpu in found:
        assert find_accelerators(visible_devices((gpu,))) == (gpu,)
        inherited = {hip: ",".join(str(each.index) for each in found)}
        assert find_accelerators({**inherited, **visible_devices((gpu,))}) == (gpu,)
        assert find_accelerators({runtime: str(gpu.index)}) == (gpu,)
        assert find_accelerators({hip: str(gpu.index)}) == (gpu,)
    words = ",".join(str(gpu.index) for gpu in found)
    assert find_accelerators({runtime: words, hip: "1"}) == found[1:]


@pytest.mark.parametrize("smi", [True, False])
def test_gpus_that_a_container_was_not_given_do_not_count(
    smi: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeDriver.remove(monkeypatch.setattr)
    node_of_amd(tmp_path, "iab")
    for vendor in (Amd, Kernel):
        monkeypatch.setattr(vendor, "root", tmp_path)
    monkeypatch.setitem(sys.modules, "amdsmi", PlacedAmdSmi("amdsmi") if smi else None)
    for minor in (129, 130):  # of the CPU's part, and of "a"
        (tmp_path / f"dev/dri/renderD{minor}").unlink()
    assert [gpu.index for gpu in find_accelerators({})] == [0], "the runtime does not count them either"
    assert node_accelerators(tmp_path) == 3
    (tmp_path / "dev/dri/renderD131").unlink()
    assert find_accelerators({}) == ()


def test_cards_of_intel_that_a_container_was_not_given_do_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeDriver.remove(monkeypatch.setattr)
    kernel(monkeypatch, tmp_path)
    for number in (1, 3):
        (tmp_path / f"sys/class/drm/card{number}/device/drm/renderD{127 + number}").mkdir(parents=True)
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD130").touch()
    assert [gpu.index for gpu in find_accelerators({})] == [0]
    closed = tmp_path / "dev/dri/renderD128"
    closed.touch()
    monkeypatch.setattr("os.open", refusing(closed, errno.EACCES))
    assert len(find_accelerators({})) == 2, "the framework complains of permissions"
    monkeypatch.setattr("os.open", refusing(closed, errno.EPERM))
    assert len(find_accelerators({})) == 1, "a control group keeps it"


def refusing(closed: Path, code: int) -> Callable[..., int]:
    opened = os.open

    def refuse(file: Any, flags: int, *rest: Any, **named: Any) -> int:
        if file == closed:
            raise OSError(code, "closed")
        return opened(file, flags, *rest, **named)

    return refuse
