"""Plausibility: honest numbers pass; each claim beyond the devices is found, with where and why."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.records.bodies import EpochCompleted, TrialBuilt
from aiperf.rules.devices import DEVICES, core_peak, find_device
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.physics import PEAK_FACTOR, findings
from tests.support.hand_made import HandMadeRun


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Tesla T4", "NVIDIA T4"),
        ("Tesla V100-SXM2-16GB", "NVIDIA V100 SXM2"),
        ("Tesla V100-PCIE-32GB", "NVIDIA V100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM 80 GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 PCIe 80 GB"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA H200", "NVIDIA H200 SXM"),
        ("NVIDIA H200 NVL", "NVIDIA H200 NVL"),
        ("NVIDIA GH200 480GB", "NVIDIA GH200"),
        ("NVIDIA L40S", "NVIDIA L40S"),
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("NVIDIA B200", "NVIDIA B200"),
        ("NVIDIA B300 SXM6 AC", "NVIDIA B300"),
        ("NVIDIA GB200", "NVIDIA GB200 (one of two GPUs)"),
        ("NVIDIA GB300", "NVIDIA GB300 (one of two GPUs)"),
        ("AMD Instinct MI350X", "AMD Instinct MI350X"),
        ("AMD Instinct MI355X", "AMD Instinct MI355X"),
        ("TPU v6 lite", "Google TPU v6e"),
        ("Trainium2", "AWS Trainium 2"),
        ("TPU7x", "Google TPU7x"),
        ("Trainium3", "AWS Trainium 3"),
        ("NVIDIA A10G", None),
        ("NVIDIA GB200 MIG 1g.23gb", None),
        ("NVIDIA H20", None),
        ("NVIDIA H800", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("cpu", None),
    ],
)
def test_devices_are_found_by_the_drivers_name(name: str, found: str | None) -> None:
    device = find_device(name)
    assert (device.name if device else None) == found


def test_every_device_has_sane_numbers_and_a_source() -> None:
    for device in DEVICES:
        assert 5e13 < device.peak_16 < 3e15 and (device.peak_32 is None or device.peak_32 <= device.peak_16)
        assert device.power_w is None or 1e10 < device.peak_16 / device.power_w < 4e12, device.name
        assert len(device.source) > 10


@pytest.mark.parametrize(("name", "clock_hz"), [("AMD Instinct MI350X", 2.2e9), ("AMD Instinct MI355X", 2.4e9)])
def test_peaks_of_cdna_4_follow_from_its_units_and_clock(name: str, clock_hz: float) -> None:
    device = find_device(name)
    assert device is not None
    assert device.peak_16 == pytest.approx(256 * 4096 * clock_hz, rel=1e-4)
    assert device.peak_32 == pytest.approx(256 * 256 * clock_hz, rel=1e-3), "vector units: there is no TF32"


@pytest.mark.parametrize(("name", "count", "ops"), [("Tesla T4", 32, 56.1e12), ("Ascend 910", 4096, 194.53e15)])
def test_the_papers_results_are_plausible(name: str, count: int, ops: float) -> None:
    device = find_device(name)
    assert device is not None
    assert 0.01 < ops / count / device.peak_16 < 0.5


def test_cpus_are_bounded_by_their_number() -> None:
    assert core_peak(32) == 320e9
    assert PEAK_FACTOR * core_peak(16) * 512 < 1e18, "a forged 1e18 OPS is beyond any node without accelerators"


def honest(root: Path, device: str | None = "NVIDIA H200", replicas: int = 1) -> HandMadeRun:
    run = HandMadeRun(root, {"run.replicas": replicas, "run.launcher": "ssh"}).at(0).release(600, replicas)
    for replica in range(replicas):
        run.at(5).start_trial(replica + 1, replica=replica)
        for epoch in range(1, 6):
            run.at(100 * epoch).epoch(replica + 1, epoch, replica=replica)
    return run.support(600, device)


@pytest.mark.parametrize("device", ["NVIDIA H200", "Some Later Accelerator", None])
def test_an_honest_run_has_no_finding(device: str | None, tmp_path: Path) -> None:
    run = honest(tmp_path, device, 3).end(600)
    assert findings(read_run(run.paths)) == ()
    physics = build_report(read_run(run.paths)).physics
    assert physics is not None
    (part,) = physics.devices
    assert (part.name, part.devices) == ((device, 3) if device else ("cpu", 24))
    assert physics.unknown == (("Some Later Accelerator",) if device and "Later" in device else ())
    assert (part.share_of_peak is not None) == (device == "NVIDIA H200")


def epoch(run: HandMadeRun, number: int, images: int) -> None:
    run.replicas[0].append(
        EpochCompleted(
            trial=1,
            epoch=number,
            images_trained=images,
            images_evaluated=360,
            correct=300,
            loss=1.0,
            validation_loss=1.0,
            learning_rate=0.1,
        )
    )


def rewrite(run: HandMadeRun, change: Callable[[dict[str, object]], object]) -> None:
    for file in run.paths.telemetry_files():
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines[1:]:
            change(line)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def more_devices(run: HandMadeRun) -> None:
    run.paths.system.write_text(
        json.dumps({"0": {"host": "node-0", "accelerators": 4, "accelerator": "NVIDIA H200", "cpu_count": 8}})
    )


def remove_samples(run: HandMadeRun) -> None:
    for file in run.paths.telemetry_files():
        file.unlink()


def cut_samples(run: HandMadeRun) -> None:
    for file in run.paths.telemetry_files():
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:8]))


def built(run: HandMadeRun, *devices: str) -> None:
    run.replicas[0].append(
        TrialBuilt(
            trial=1,
            architecture=run.architecture.hash,
            compute={},
            devices=devices,
            framework="tensorflow",
            source_hash="0",
            environment={},
        )
    )


def unlink_telemetry(run: HandMadeRun) -> None:
    for file in run.paths.telemetry_files():
        file.unlink()


def unlink_system(run: HandMadeRun) -> None:
    run.paths.system.unlink()


FORGED: dict[str, tuple[str, Callable[[HandMadeRun], object]]] = {
    "an epoch with a million times the images": ("operations", lambda run: epoch(run.at(550), 6, 1_437_000_000)),
    "progress of an open epoch": ("operations", lambda run: run.at(580).progress(1, 6, 10**12).at(599).end_trial(1)),
    "no telemetry": ("telemetry", remove_samples),
    "telemetry of the beginning alone": ("telemetry", cut_samples),
    "no system.json": ("devices", unlink_system),
    "other devices than sampled": ("devices", more_devices),
    "a trainer on other devices": ("devices", lambda run: built(run, "NVIDIA B200")),
    "idle devices": ("utilisation", lambda run: run.support(600, use=0.0)),
    "devices without power": ("power", lambda run: run.support(600, power_w=2.0)),
    "more power than the board has": ("power", lambda run: run.support(600, power_w=7000.0)),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_each_implausible_claim_is_found(forgery: str, tmp_path: Path) -> None:
    kind, forge = FORGED[forgery]
    run = honest(tmp_path)
    forge(run)
    found = findings(read_run(run.end(600).paths))
    # Operations beyond the devices take more energy than they have used, too.
    assert kind in {item.kind for item in found} <= {kind, "energy"}
    assert all(item.where and item.found and item.limit for item in found)
    report = build_report(read_run(run.paths))
    assert report.verdict != "official"
    assert "plausible" in [violation.rule for violation in report.violations]


def test_work_that_the_energy_does_not_pay_for(tmp_path: Path) -> None:
    run = honest(tmp_path)
    epoch(run.at(590), 6, 5_000_000)
    run.support(600, power_w=400)
    counter = iter(range(0, 10**9, 1000))  # a joule for each sample
    rewrite(run, lambda line: line.update(accelerators=[{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": next(counter)}]))
    (found,) = findings(read_run(run.end(600).paths))
    assert (found.kind, found.where) == ("energy", "node node-0")


def test_a_replica_that_is_far_faster_than_others_with_the_same_work(tmp_path: Path) -> None:
    run = honest(tmp_path, replicas=3).at(520).start_trial(4)
    for number in range(1, 9):
        run.at(520 + 5 * number).epoch(4, number)
    for trial in (5, 6):
        run.at(521).start_trial(trial, replica=trial - 4)
    assert [item.kind for item in findings(read_run(run.end(600).paths))] == ["images"]


def test_a_simulated_run_is_not_checked(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"training.trainer": "simulated"}).at(0).release(100).at(1).start_trial(1)
    epoch(run.at(50), 1, 10**12)
    report = build_report(read_run(run.end(100).paths))
    assert report.physics is not None
    physics = report.physics
    assert (physics.checked, physics.findings, physics.devices, physics.unknown) == (False, (), (), ())
    assert next(rule.found for rule in report.rules if rule.rule == "plausible") == "not checked: simulated"
