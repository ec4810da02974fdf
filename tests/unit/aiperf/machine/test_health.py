"""Sources of health on imitated nodes: what the kernel and the driver count, each by itself."""

from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from aiperf.machine.health import Xids, sample_infiniband, sample_nfs, sample_processors, sources
from aiperf.machine.vendors.nvidia import Nvidia
from tests.support.driver import FakeDriver
from tests.support.machines import Machine, imitate

MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device server:/home mounted on /home with fstype nfs4 statvers=1.1
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 1 0 11 1000 1000 0 1000 0 2 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 100 103 1 14000 52000 3 40 50 0
\t       WRITE: 50 51 0 52000 6800 1 20 25 0
device /dev/sda mounted on /data with fstype ext4
device other:/data mounted on /more with fstype nfs statvers=1.1
\tper-op statistics
\t        READ: 10 10 2 140 520 3 40 50
"""


def write_port(root: Path, name: str, **counters: object) -> None:
    folder = root / f"sys/class/infiniband/{name}/ports/1/counters"
    folder.mkdir(parents=True)
    for counter, value in counters.items():
        (folder / counter).write_text(f"{value}\n")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    imitate(Machine(cpus=4), tmp_path, monkeypatch)
    return tmp_path


def test_a_node_without_any_of_it_gives_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver.remove(monkeypatch.setattr)
    assert [source() for source in sources()] == [{}] * len(sources())


def test_retransmissions_of_all_nfs_mounts_are_added(root: Path) -> None:
    (root / "proc/self/mountstats").write_text(MOUNTSTATS)
    assert sample_nfs() == {"nfs_retransmissions": 4, "nfs_timeouts": 3}


def test_a_node_with_other_mounts_has_no_nfs(root: Path) -> None:
    (root / "proc/self/mountstats").write_text(
        "device /dev/sda mounted on / with fstype ext4\n\tREAD: 1 9 9 1 1 1 1 1\n"
    )
    assert sample_nfs() == {}


def test_ports_of_infiniband_are_added_and_what_cannot_be_read_is_left_out(root: Path) -> None:
    write_port(
        root, "mlx5_0", port_rcv_data=1000, port_xmit_data=500, symbol_error=3, port_xmit_discards=2, link_downed=1
    )
    write_port(root, "mlx5_1", port_rcv_data=1, symbol_error="N/A (not supported)", link_downed=0)
    assert sample_infiniband() == {
        "infiniband_received_bytes": 4004,
        "infiniband_sent_bytes": 2000,
        "infiniband_errors": 5,
        "infiniband_link_downs": 1,
    }


def test_cpus_that_were_hot_and_threads_that_waited_for_a_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"pod/cpu.max": "250000 100000", "pod/cpu.stat": "usage_usec 7\nthrottled_usec 1500000", "cpu.stat": ""}
    imitate(Machine(cpus=4, groups="0::/pod\n", limits=limits), tmp_path, monkeypatch)
    for cpu, hot in enumerate((0, 2, 3)):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_count").write_text(f"{hot}\n")
    assert sample_processors() == {"cpu_throttle_events": 5, "cpu_quota_held_s": 1.5}


class Events:
    """Event sets of NVML: each wait gives the next event, and raises a timeout without any."""

    def __init__(self, *codes: int) -> None:
        self.waiting = list(codes)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeDriver().install(monkeypatch.setattr)
        monkeypatch.setattr(pynvml, "nvmlEventSetCreate", lambda: "set")
        monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", lambda *_: None)
        monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", self._wait)

    def _wait(self, events: object, milliseconds: int) -> object:
        assert (events, milliseconds) == ("set", 0), "a sample never waits"
        if not self.waiting:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        code = self.waiting.pop(0)
        return SimpleNamespace(eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=code, device="gpu")


def test_xids_are_heard_once(monkeypatch: pytest.MonkeyPatch) -> None:
    events = Events(79, 31)
    events.install(monkeypatch)
    xids = Xids()
    assert xids() == {"xids_heard": 1, "xids": [{"xid": 79, "uuid": "GPU-1"}, {"xid": 31, "uuid": "GPU-1"}]}
    assert xids() == {"xids_heard": 1}
    events.waiting.append(48)
    assert xids()["xids"] == [{"xid": 48, "uuid": "GPU-1"}]


def test_a_driver_without_events_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver().install(monkeypatch.setattr)

    def refuse(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlEventSetCreate", refuse)
    assert Xids()() == {}


def test_a_gpu_is_sampled_with_its_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver().install(monkeypatch.setattr)
    answers = {
        "CurrentClocksEventReasons": 0x44,
        "TotalEccErrors": 2,
        "RemappedRows": (1, 0, False, True),
        "CurrPcieLinkWidth": 8,
        "MaxPcieLinkWidth": 16,
        "PcieReplayCounter": 7,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", lambda *_, answer=answer: answer)
    value = SimpleNamespace(ulVal=0, ullVal=11, uiVal=0)
    found = SimpleNamespace(nvmlReturn=0, valueType=pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, value=value)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", lambda *_: [found])
    (gpu,) = Nvidia.sample()
    signs = {name.removeprefix("DCGM_FI_DEV_"): gpu[name] for name in list(gpu)[9:]}
    assert signs == {
        "MEM_CLOCK": 1410,
        "CLOCKS_EVENT_REASONS": 0x44,
        "ECC_SBE_VOL_TOTAL": 2,
        "ECC_DBE_VOL_TOTAL": 2,
        "CORRECTABLE_REMAPPED_ROWS": 1,
        "UNCORRECTABLE_REMAPPED_ROWS": 0,
        "ROW_REMAP_FAILURE": 1,
        "PCIE_LINK_WIDTH": 8,
        "PCIE_MAX_LINK_WIDTH": 16,
        "PCIE_REPLAY_COUNTER": 7,
        "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 11,
        "NVLINK_REPLAY_ERROR_COUNT_TOTAL": 11,
        "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 11,
    }
