"""What a node says about itself, by the files of machines that are not this one."""

import json
from pathlib import Path

import pynvml
import pytest

from aiperf.machine import description
from aiperf.machine.description import describe_parts, describe_storage, folders_of, modules_of
from tests.support.driver import FakeDriver
from tests.support.machines import Machine, imitate

FILES = {
    **{
        f"sys/devices/system/cpu/cpu{cpu}/topology/{name}": f"{value}\n"
        for cpu in range(8)
        for name, value in (("physical_package_id", cpu // 4), ("core_id", cpu % 2), ("die_id", 0))
    },
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3800000\n",
    "sys/devices/system/node/node0/cpulist": "0-3\n",
    "sys/devices/system/node/node1/cpulist": "4-7\n",
    "sys/class/net/lo/operstate": "unknown\n",
    "sys/class/net/eth0/operstate": "up\n",
    "sys/class/net/eth0/speed": "25000\n",
    "sys/class/net/eth0/device/vendor": "0x15b3\n",
    "sys/class/net/eth1/operstate": "down\n",
    "sys/class/net/eth1/device/vendor": "0x15b3\n",
    **{
        f"sys/class/infiniband/mlx5_{card}/{name}": f"{value}\n"
        for card in range(4)
        for name, value in (
            ("ports/1/state", "4: ACTIVE" if card else "1: DOWN"),
            ("ports/1/rate", "400 Gb/sec (4X NDR)"),
            ("ports/1/link_layer", "InfiniBand"),
            ("hca_type", "MT4129"),
        )
    },
    **{
        f"sys/bus/pci/devices/0000:{card}7:00.0/{name}": f"{value}\n"
        for card in range(1, 5)
        for name, value in (
            ("class", "0x030200"),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("max_link_width", 16),
            ("current_link_speed", "32.0 GT/s PCIe"),
            ("current_link_width", 8 if card == 4 else 16),
            ("numa_node", card // 3),
        )
    },
    "sys/bus/pci/devices/0000:00:1f.0/class": "0x060100\n",
    "run/.containerenv": 'engine="podman-4.3.1"\nimage="registry/aiperf:1"\n',
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "machine"
    imitate(Machine(cpus=8, sockets=2, affinity="0-2,6"), folder, monkeypatch)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setattr(description, "_version", lambda *words: "")
    return folder


def test_a_node_describes_its_parts(root: Path) -> None:
    found = describe_parts({})
    expected = {
        "cpu_sockets": 2,
        "cpu_cores": 4,
        "cpu_max_mhz": 3800.0,
        "numa_nodes": 2,
        "cpu_affinity": "0-2,6",
        "cpu_caches": "L1d 48K, L1i 32K, L2 2048K, L3 32768K",
        "accelerator_pcie": "3 x PCIe 5 x16; 1 x PCIe 5 x16, now PCIe 5 x8",
        "accelerator_numa": "2 at node 0, 2 at node 1",
        "network": "1 x 25 Gbit/s",
        "infiniband": "3 x 400 Gb/sec (4X NDR), InfiniBand, MT4129",
        "container": "podman",
        "container_image": "registry/aiperf:1",
    }
    assert {name: found.get(name) for name in expected} == expected
    json.dumps(found, allow_nan=False)


def test_a_node_whose_kernel_says_nothing_describes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiperf.host.ROOT", tmp_path)
    monkeypatch.setattr(description, "_version", lambda *words: "")
    monkeypatch.setattr(description, "_wheels", dict)
    assert describe_parts({"run": tmp_path / "none"}).keys() <= {"cpu_affinity"}


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:36 / /shared rw - nfs4 nfs1:/export/with\\040blank rw,vers=4.2
41 22 0:37 / /shared/fast rw master:2 - lustre 10.0.0.1@o2ib:/fast rw
a torn line - x
"""


def test_a_folder_is_on_the_innermost_file_system(root: Path, tmp_path: Path) -> None:
    place = tmp_path.resolve()
    (root / "proc/self/mountinfo").write_text(MOUNTS.replace("/shared", str(place)))
    (tmp_path / "fast").mkdir()
    found = describe_storage(folders_of(tmp_path, str(tmp_path / "fast")))
    assert (found["run_file_system"], found["run_file_system_source"]) == ("nfs4", "nfs1:/export/with blank")
    assert (found["data_file_system"], found["data_file_system_source"]) == ("lustre", "10.0.0.1@o2ib:/fast")
    assert int(str(found["run_file_system_bytes"])) > 0
    assert describe_storage({"data": tmp_path / "none"}) == {}


DMIDECODE = """\
# dmidecode 3.4
Handle 0x0011, DMI type 17, 92 bytes
Memory Device
\tSize: 64 GB
\tLocator: A1
\tType: DDR5
\tSpeed: 5600 MT/s
\tConfigured Memory Speed: 4800 MT/s

Handle 0x0012, DMI type 17, 92 bytes
Memory Device
\tSize: No Module Installed
\tType: Unknown

Handle 0x0013, DMI type 17, 92 bytes
Memory Device
\tSize: 64 GB
\tType: DDR5
\tConfigured Memory Speed: 4800 MT/s
"""


def test_modules_of_memory_are_counted_by_kind_at_the_speed_that_is_configured() -> None:
    assert modules_of(DMIDECODE) == "2 x 64 GB DDR5 4800 MT/s"
    assert modules_of("No SMBIOS nor DMI entry point found, sorry.") is None


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"APPTAINER_CONTAINER": "/images/aiperf.sif"}, ("apptainer", "/images/aiperf.sif")),
        ({"SINGULARITY_CONTAINER": "/images/a.sif"}, ("singularity", "/images/a.sif")),
        ({}, ("podman", "registry/aiperf:1")),
    ],
)
def test_a_container_is_named_with_its_image(root: Path, environment: dict[str, str], found: tuple[str, str]) -> None:
    facts = description.describe_programs(environment)
    assert (facts["container"], facts["container_image"]) == found


def test_slurm_is_asked_inside_its_jobs_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(description, "_version", lambda *words: " ".join(words))
    assert "slurm" not in description.describe_programs({})
    assert description.describe_programs({"SLURM_JOB_ID": "7"})["slurm"] == "scontrol --version"


def test_gpus_describe_clocks_nvlinks_and_their_places(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver(gpus=4).install(monkeypatch.setattr)

    def link(gpu: int, number: int) -> int:
        if number >= 18:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return 1 if gpu < 3 or number < 17 else 0

    def ancestor(one: int, other: int) -> int:
        return 40 if one // 2 == other // 2 else 50

    for name, answer in (
        ("DeviceGetHandleByIndex", lambda index: index),
        ("DeviceGetMaxClockInfo", lambda gpu, kind: 1980),
        ("DeviceGetNvLinkState", link),
        ("DeviceGetTopologyCommonAncestor", ancestor),
        ("DeviceGetNvLinkVersion", lambda gpu, number: pynvml.NVML_NVLINK_VERSION_4_0),
    ):
        monkeypatch.setattr(pynvml, f"nvml{name}", answer)
    found = describe_parts({})
    assert found["accelerator_clock"] == "4 x 1980 MHz"
    assert found["accelerator_links"] == "3 x 18 NVLinks 4; 1 x 17 NVLinks 4"
    assert found["accelerator_topology"] == "4 x at different processors; 2 x at one processor"


def test_every_part_is_asked() -> None:
    parts = {name for name in vars(description) if name.startswith("describe_")} - {"describe_parts"}
    assert len(parts) == 5
    assert set(describe_parts.__code__.co_names) == parts
