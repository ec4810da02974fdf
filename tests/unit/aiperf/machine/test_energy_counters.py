"""Counters of energy on imitated nodes."""

from pathlib import Path

import pynvml
import pytest

from aiperf.machine.energy_counters import AcceleratorCounter, cpu_packages, energy_of
from tests.support.driver import FakeDriver
from tests.support.hand_made import ManualClock
from tests.support.machines import Machine, imitate


def zone(root: Path, number: str, name: str, joules: float) -> None:
    folder = root / f"sys/class/powercap/intel-rapl:{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{joules * 1e6:.0f}")
    (folder / "max_energy_range_uj").write_text("999999999")


def package(root: Path, number: int, joules: float) -> None:
    zone(root, str(number), f"package-{number}", joules)


def test_joules_of_all_packages_past_the_end_of_their_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imitate(Machine(cpus=4), tmp_path, monkeypatch)
    clock = ManualClock()
    package(tmp_path, 0, 900)
    package(tmp_path, 1, 10)
    used = energy_of(cpu_packages(), clock.monotonic_s)
    clock.pause(2)
    package(tmp_path, 0, 100)
    package(tmp_path, 1, 60)
    assert used() == pytest.approx(200 + 50)
    (tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj").unlink()
    assert used() is None, "a sum without a package would look like a saving"


def test_the_platform_and_parts_of_a_package_are_not_counted_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(Machine(cpus=4), tmp_path, monkeypatch)
    zones = {"0": "package-0-die-0", "0:0": "core", "0:1": "dram", "1": "package-0-die-1", "2": "psys"}
    clock = ManualClock()
    for number, name in zones.items():
        zone(tmp_path, number, name, 10)
    used = energy_of(cpu_packages(), clock.monotonic_s)
    clock.pause(2)
    for number, name in zones.items():
        zone(tmp_path, number, name, 60)
    assert used() == pytest.approx(2 * 50)


def test_an_accelerator_counts_in_millijoules_and_not_for_an_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver().install(monkeypatch.setattr)
    clock = ManualClock()
    used = energy_of(AcceleratorCounter(0), clock.monotonic_s)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", lambda _: 12_500_000)
    clock.pause(0.5)
    assert used() is None, "the counter may not have moved yet"
    clock.pause(0.5)
    assert used() == pytest.approx(500)
    assert energy_of(AcceleratorCounter(7), clock.monotonic_s)() is None


def test_a_node_without_counters_has_no_energy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imitate(Machine(cpus=4), tmp_path, monkeypatch)
    FakeDriver.remove(monkeypatch.setattr)
    clock = ManualClock()
    for counter in (cpu_packages(), AcceleratorCounter(0)):
        used = energy_of(counter, clock.monotonic_s)
        clock.pause(5)
        assert used() is None
