"""The accelerators of a node, shared among its replicas."""

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from aiperf.config.sections.base import Precision
from aiperf.config.settings import load_config
from aiperf.errors import EnvironmentNotReadyError, TrialFailedError
from aiperf.host import ranges, this_host
from aiperf.machine.accelerators import (
    best_precision,
    find_accelerators,
    invisible_reason,
    lost_accelerators,
    near_cpus,
    own_accelerator,
    share_of,
    sharers_of,
    visible_devices,
)
from aiperf.machine.node import describe_node
from aiperf.machine.vendors import Accelerator
from aiperf.machine.vendors.amd import Amd
from aiperf.machine.vendors.contract import pci_address
from aiperf.machine.vendors.kernel import Kernel
from aiperf.machine.vendors.nvidia import Nvidia
from primary.nodes.placement import PlacementCheck
from search_space.limits import usable_memory
from tests.support.driver import FakeDriver
from tests.support.machines import Machine, imitate


def gpu(index: int, precision: Precision = "mixed_bfloat16") -> Accelerator:
    return Accelerator(index, "GPU", 80 << 30, precision, "570")


def visible(found: list[Accelerator], allowed: str | None) -> tuple[Accelerator, ...]:
    return Nvidia.visible(found, {} if allowed is None else {"CUDA_VISIBLE_DEVICES": allowed})


def test_replicas_of_a_node_share_its_accelerators() -> None:
    node = [gpu(n) for n in range(4)]
    assert [[a.index for a in share_of(node, replica, 2)] for replica in (0, 1, 2)] == [[0, 1], [2, 3], [0, 1]]
    assert [[a.index for a in share_of(node[:1], replica, 2)] for replica in (0, 1)] == [[0], [0]]
    assert share_of([], 0, 2) == ()
    # Of eight on boards of two or four, nobody's are apart.
    eight = [gpu(n) for n in range(8)]
    assert [[a.index for a in share_of(eight, replica, 3)] for replica in range(3)] == [[0, 1], [2, 3, 4], [5, 6, 7]]
    assert [a.index for a in visible(node, None)] == [0, 1, 2, 3]
    assert [a.index for a in visible(node, "2, 0")] == [2, 0]
    assert [a.index for a in visible(node, "")] == []
    assert [a.index for a in visible(node, "2,9,0")] == [2], "CUDA stops at the first word that names no GPU"
    assert visible(node, "-1") == visible(node, "NoDevFiles") == ()
    assert [a.word for a in visible(node, "3,1")] == ["3", "1"]
    assert [a.index for a in visible(node, "2,2,0,2")] == [2, 0], "each once"


def test_a_uuid_that_is_not_listed_is_asked_for_and_one_that_is_not_known_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = [replace(gpu(n), uuid=f"GPU-{n}abcdef") for n in range(2)]
    FakeDriver(gpus=2).install(monkeypatch.setattr)
    monkeypatch.setattr("pynvml.nvmlDeviceGetMemoryInfo", lambda part: SimpleNamespace(total=10 << 30))
    slices = ["MIG-a", "MIG-b", "MIG-c"]
    found = visible(node[:2], ",".join(slices))
    assert [a.word for a in found] == slices, "there may be more slices than GPUs"
    assert {a.memory_bytes >> 30 for a in found} == {10}
    assert [a.index for a in visible(node, "GPU-1abc,GPU-0abcdef")] == [1, 0]
    for words in ("MIG-no-such", "GPU-no-such", "all", "0;1"):
        with pytest.raises(EnvironmentNotReadyError, match=f"CUDA_VISIBLE_DEVICES={words}: .* no accelerator of this"):
            visible(node, words)


def test_roc_takes_uuids_and_intel_parts_of_cards() -> None:
    node = [replace(gpu(n), uuid=f"GPU-{n}abcdef") for n in range(3)]
    assert [a.index for a in Amd.visible(node, {"ROCR_VISIBLE_DEVICES": "1,GPU-2abcdef"})] == [1, 2]
    assert [
        a.index for a in Amd.visible(node, {"ROCR_VISIBLE_DEVICES": "GPU-2abcdef,0", "HIP_VISIBLE_DEVICES": "1"})
    ] == [0]
    with pytest.raises(EnvironmentNotReadyError, match="ROCR_VISIBLE_DEVICES"):
        Amd.visible(node, {"ROCR_VISIBLE_DEVICES": "0,GPU-no-such"})
    assert [a.index for a in Kernel.visible(node, {"ZE_AFFINITY_MASK": "0.0,0.1,2"})] == [0, 2]


def test_a_card_for_a_screen_does_not_join_in(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = replace(gpu(1), memory_bytes=4 << 30)
    assert [a.index for a in visible([gpu(0), screen, gpu(2)], None)] == [0, 2]
    assert [a.index for a in visible([screen], None)] == [1]
    assert [a.index for a in visible([gpu(0), screen], "1")] == [1], "unless it is named"


def test_a_lost_card_costs_no_other_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver(gpus=4).install(monkeypatch.setattr)

    def handle(index: int) -> str:
        if index == 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return str(index)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
    assert [each.index for each in find_accelerators({})] == [0, 1, 3]
    assert [sample["index"] for sample in Nvidia.sample()] == [0, 1, 3]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: f"GPU-{handle}")
    assert [each.index for each in find_accelerators({"CUDA_VISIBLE_DEVICES": "3"})] == [3]
    # The scheduler's list of all cards: the lost one hides none, and numbers no longer name them.
    allowed = find_accelerators({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,1"})
    assert visible_devices(allowed)["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1,GPU-3"
    facts = describe_node()
    assert (facts["accelerators"], facts["lost_accelerators"]) == (3, "GPU 2: GPU is lost")
    config = load_config(overrides={"run.dataset": "digits"})
    (warning,) = (text for text in PlacementCheck(config, 1).look({0: facts}) if "GPU is lost" in text)
    assert "of replica 0 has unusable accelerators: GPU 2: GPU is lost; reset a lost one, or restart" in warning


@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, True),
        (pynvml.NVML_ERROR_UNKNOWN, True),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, False),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, False),
    ],
)
def test_a_driver_that_refuses_all_cards_is_named(answer: int, lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise pynvml.NVMLError(answer)

    FakeDriver(gpus=4).install(monkeypatch.setattr)
    monkeypatch.setattr(pynvml, "nvmlInit", refused)
    named = str(describe_node().get("lost_accelerators", ""))
    assert named.startswith("all GPUs: ") == lost
    assert bool(named) == lost


def test_replicas_that_share_an_accelerator_are_counted_and_share_its_memory() -> None:
    for cards, share in itertools.product((1, 2, 3, 8), (1, 2, 3, 5, 8)):
        node = [gpu(n) for n in range(cards)]
        owners = [{each.index for each in share_of(node, replica, share)} for replica in range(share)]
        for replica in range(share):
            shared = [sum(card in own for own in owners) for card in owners[replica]]
            assert sharers_of(cards, replica, share) == max(shared), (cards, share, replica)
    assert sharers_of(0, 0, 4) == 1
    assert usable_memory(80 * 10**9) == 66 * 10**9
    assert usable_memory(80 * 10**9, 2) == 30 * 10**9
    assert usable_memory(4 * 10**9) == 2 * 10**9, "half of a small one, rather than nearly nothing"


def test_slices_of_a_gpu_are_accelerators_with_their_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver(gpus=2, slices=(40, 20)).install(monkeypatch.setattr)
    found = find_accelerators({})
    assert [(each.word, each.memory_bytes >> 30) for each in found] == [
        ("MIG-0-0", 40),
        ("MIG-0-1", 20),
        ("MIG-1-0", 40),
        ("MIG-1-1", 20),
    ]
    (own,) = find_accelerators({"CUDA_VISIBLE_DEVICES": "MIG-1-1"})
    assert (own.index, own.memory_bytes >> 30) == (1, 20)
    (first,) = find_accelerators({"CUDA_VISIBLE_DEVICES": "1"})
    assert first.word == "MIG-1-0", "CUDA shows the first slice"
    assert visible_devices(found[1:3])["CUDA_VISIBLE_DEVICES"] == "MIG-0-1,MIG-1-0"


def test_numbers_name_no_whole_gpu_next_to_one_that_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA lists whole GPUs first: number 1 would be the first slice of GPU 0."""
    FakeDriver(gpus=3, slices=(40, 20)).install(monkeypatch.setattr)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda gpu: [int(gpu != "1"), 1])
    real = pynvml.nvmlDeviceGetMigDeviceHandleByIndex

    def slice_of(gpu: str, place: int) -> str:
        if gpu == "2":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return str(real(gpu, place))

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigDeviceHandleByIndex", slice_of)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda part: f"{'MIG' if '-' in part else 'GPU'}-{part}")
    found = find_accelerators({})
    assert [each.word for each in found] == ["MIG-0-0", "MIG-0-1", "GPU-1"]
    assert own_accelerator(2, {})["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    (uncut,) = lost_accelerators()
    assert uncut.startswith("GPU 2: MIG is on, and it has no slice: nvidia-smi mig -i 2 -cgi PROFILE -C, or")
    # All of them cut, or none: numbers are right, and stay.
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda gpu: [0, 0])
    assert [each.word for each in find_accelerators({})] == ["0", "1", "2"]


def test_a_rank_takes_its_own_accelerator_and_sees_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver(gpus=2, slices=(40, 20)).install(monkeypatch.setattr)
    two = {"CUDA_VISIBLE_DEVICES": "MIG-0-1,MIG-1-0"}
    assert [own_accelerator(rank, two)["CUDA_VISIBLE_DEVICES"] for rank in (0, 1)] == ["MIG-0-1", "MIG-1-0"]
    with pytest.raises(
        TrialFailedError, match=r"rank 2 of this node has no accelerator.*there are 2: .*replica\.ranks"
    ):
        own_accelerator(2, two)
    FakeDriver(gpus=4).install(monkeypatch.setattr)
    chosen = {"CUDA_VISIBLE_DEVICES": "3,1"}
    assert own_accelerator(1, chosen) == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert own_accelerator(0, {"CUDA_VISIBLE_DEVICES": ""}) == {}, "all are hidden"
    FakeDriver.remove(monkeypatch.setattr)
    assert own_accelerator(5, {}) == {}


TWO_SOCKETS = ("0-31",) * 4 + ("32-63",) * 4
EIGHTHS = tuple(f"{first}-{first + 7}" for first in range(0, 64, 8))


@pytest.mark.parametrize(
    ("machine", "threads", "cpus"),
    [
        pytest.param(Machine(cpus=64, cards=TWO_SOCKETS), 8, {0: "0-31", 3: "0-31", 7: "32-63"}, id="two-sockets"),
        pytest.param(Machine(cpus=64, cards=TWO_SOCKETS), 9, {0: "0-63"}, id="too-many-threads"),
        pytest.param(Machine(cpus=64, cards=TWO_SOCKETS, affinity="8-63"), 6, {0: "8-31", 4: "32-63"}, id="taken"),
        pytest.param(Machine(cpus=64, cards=TWO_SOCKETS, affinity="8-63"), 7, {0: "8-63", 4: "32-63"}, id="uneven"),
        pytest.param(Machine(cpus=64, cards=TWO_SOCKETS, affinity="0-31"), 4, {0: "0-31", 4: "0-31"}, id="bound"),
        pytest.param(Machine(cpus=64, cards=("0-31",) * 8), 4, {0: "0-63", 7: "0-63"}, id="all-at-one-socket"),
        pytest.param(Machine(cpus=64, cards=("0-63",) * 8), 8, {0: "0-63", 7: "0-63"}, id="a-virtual-machine"),
        pytest.param(Machine(cpus=64, cards=EIGHTHS), 8, {0: "0-7", 1: "8-15"}, id="eight-domains"),
        pytest.param(Machine(cpus=64), 8, {0: "0-63"}, id="no-addresses"),
    ],
)
def test_a_rank_computes_on_the_cpus_at_its_accelerator_if_none_is_left_idle(
    machine: Machine, threads: int, cpus: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(machine, tmp_path, monkeypatch)
    FakeDriver(gpus=8).install(monkeypatch.setattr)
    found = {rank: ranges(near_cpus(rank, threads, {})) for rank in cpus}
    assert found == cpus
    assert ranges(near_cpus(8, threads, {})) == ranges(this_host().affinity()), "the complaint comes later"
    # A launcher that gives a job one card says nothing of the others' CPUs.
    last = max(cpus)
    assert ranges(near_cpus(0, threads, {"CUDA_VISIBLE_DEVICES": str(last)})) == cpus[last]
    FakeDriver.remove(monkeypatch.setattr)
    assert near_cpus(0, threads, {}) == this_host().affinity()


def test_an_address_that_linux_has_no_device_for_is_near_no_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(Machine(cards=("0",)), tmp_path, monkeypatch)
    assert [ranges(this_host().cpus_near(each)) for each in ("0000:00:00.0", "0000:07:00.0", "")] == ["0", "", ""]
    written = {b"00000000:3B:00.0": "0000:3b:00.0", "00010000:01:00.0": "10000:01:00.0", "../..": "", None: ""}
    assert {each: pci_address(each) for each in written} == written


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_gpu_that_one_process_may_use_at_a_time_is_known(exclusive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver(gpus=2, exclusive=exclusive).install(monkeypatch.setattr)
    assert [each.exclusive for each in find_accelerators({})] == [exclusive] * 2


def test_the_precision_is_the_fastest_of_the_weakest_accelerator() -> None:
    assert best_precision([gpu(0), gpu(1)]) == "mixed_bfloat16"
    assert best_precision([gpu(0), gpu(1, "mixed_float16")]) == "mixed_float16"
    assert best_precision([gpu(0), gpu(1, "float32"), gpu(2, "mixed_float16")]) == "float32"
    assert best_precision([], frozenset({"avx2"})) == "float32"
    assert best_precision([], frozenset({"avx2", "avx512_bf16"})) == "mixed_bfloat16"


@pytest.mark.parametrize("hidden", ["", "-1", "NoDevFiles", "7"])
def test_a_framework_without_gpus_is_refused_next_to_gpus_that_are_not_hidden(
    hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeDriver().install(monkeypatch.setattr)
    reason = invisible_reason("tensorflow 2.20.0, keras 3.11.3", 0, {}) or ""
    assert reason.startswith("the driver shows 1 GPU (Fake H200), tensorflow 2.20.0 sees none")
    assert all(remedy in reason for remedy in ("make run GPU=1", "pip install '.[gpu]'", "CUDA_VISIBLE_DEVICES=''"))
    assert invisible_reason("tensorflow", 0, {"CUDA_VISIBLE_DEVICES": "MIG-1"}) is not None
    assert invisible_reason("tensorflow", 1, {}) is None
    assert invisible_reason("tensorflow", 0, {"CUDA_VISIBLE_DEVICES": hidden}) is None


@pytest.mark.parametrize(
    ("framework", "remedy"),
    [
        ("tensorflow", "(make run GPU=1, or pip install '.[gpu]')"),
        ("jax", "(make run GPU=1 FRAMEWORK=jax, or pip install '.[jax-cuda]')"),
        ("torch", "(make run GPU=1 FRAMEWORK=torch, or see docs/frameworks.md)"),
    ],
)
def test_the_build_for_gpus_is_that_of_the_framework_that_sees_none(
    framework: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeDriver().install(monkeypatch.setattr)
    assert remedy in (invisible_reason(f"{framework} 2.11.0, keras 3.12.0", 0, {}) or "")


def test_without_a_driver_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiperf.machine.accelerators.find_accelerators", lambda environment: ())
    assert invisible_reason("tensorflow", 0) is None
