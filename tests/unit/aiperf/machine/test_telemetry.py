"""Samples of a node, and their evaluation in the analysis."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiperf.clock import format_utc
from aiperf.machine import telemetry
from aiperf.machine.accelerators import AcceleratorSamples
from aiperf.machine.energy_counters import CpuPackages
from aiperf.machine.telemetry import CpuPower, Telemetry
from aiperf.run_directory.checksums import without_seal
from aiperf.run_directory.paths import open_run
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from replica.trainer.__main__ import sample_further_node
from replica.trainer.settings import TelemetrySettings
from tests.support.driver import FakeDriver
from tests.support.hand_made import T0_MS, HandMadeRun, ManualClock
from tests.support.runs import wait_for


def test_an_accelerator_is_sampled_with_the_names_and_units_of_dcgm(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver().install(monkeypatch.setattr)
    (gpu,) = AcceleratorSamples()()["accelerators"]
    assert gpu["DCGM_FI_DEV_GPU_UTIL"] == 87
    assert gpu["DCGM_FI_DEV_FB_USED"] == 1024.0
    assert gpu["DCGM_FI_DEV_POWER_USAGE"] == 250.5
    assert gpu["uuid"] == "GPU-1"
    assert "DCGM_FI_DEV_GPU_TEMP" not in gpu, "a field that the driver does not support is left out"


def test_power_of_the_cpus_from_counters_that_wrap(tmp_path: Path) -> None:
    for number, used in (("0", 900), ("1", 100)):
        package = tmp_path / f"intel-rapl:{number}"
        package.mkdir()
        (package / "name").write_text(f"package-{number}\n")
        (package / "energy_uj").write_text(f"{used}000000")
        (package / "max_energy_range_uj").write_text("999999999")
    part = tmp_path / "intel-rapl:0:0"
    part.mkdir()
    (part / "energy_uj").write_text("not a number: parts of a package are not read")
    clock = ManualClock()
    power = CpuPower(clock, CpuPackages(tmp_path))
    assert power() == {}
    clock.pause(10)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("100000000")  # 200 J more, past the end of its range
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("150000000")
    assert power() == {"cpu_power_w": pytest.approx(25.0)}


def test_a_sampler_writes_a_header_and_samples_and_survives_sources_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> dict[str, Any]:
        raise NotImplementedError("this system has no /proc/diskstats")

    monkeypatch.setattr(telemetry, "default_sources", lambda clock: (broken, telemetry.sample_memory))
    file = tmp_path / "telemetry" / "x.jsonl"
    sampler = Telemetry(file, 3600, ManualClock(), {"writer": "replica-0000-1"})
    sampler.start()
    sampler.stop()
    header, sample = map(json.loads, file.read_text().splitlines())
    assert header["writer"] == "replica-0000-1"
    assert sample.keys() == {"time", "memory_used_bytes", "memory_total_bytes", "crc32"}


def test_lines_that_cannot_be_written_are_kept_for_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    obstacle = tmp_path / "telemetry"
    obstacle.write_text("a file where a directory should be")
    sampler = Telemetry(obstacle / "x.jsonl", 3600, ManualClock(), {})
    sampler._write({"header": 1})
    sampler._write({"sample": 1})
    assert caplog.text.count("telemetry cannot be written") == 1
    obstacle.unlink()
    sampler._write({"sample": 2})
    lines = [without_seal(json.loads(line)) for line in (obstacle / "x.jsonl").read_text().splitlines()]
    assert lines == [{"header": 1}, {"sample": 1}, {"sample": 2}]


@pytest.mark.parametrize(("rank", "local_rank", "files"), [(0, 0, 0), (1, 1, 0), (2, 0, 1)])
def test_ranks_sample_the_nodes_that_have_no_agent(
    rank: int, local_rank: int, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samplers: list[Telemetry] = []

    def started(*facts: Any) -> None:
        samplers.append(telemetry.start_telemetry(*facts))

    monkeypatch.setattr("replica.trainer.__main__.start_telemetry", started)
    settings = TelemetrySettings(run=str(tmp_path), writer="replica-0000-1", replica=0, interval_s=0.01)
    sample_further_node(settings, rank, local_rank)
    sample_further_node(None, rank, local_rank)
    wait_for(lambda: len(list(tmp_path.glob("telemetry/*"))) == len(samplers))
    for sampler in samplers:
        sampler.stop()
    assert len(list(tmp_path.glob("telemetry/replica-0000-1-*.jsonl"))) == files


def write_samples(run: HandMadeRun, host: str, samples: list[dict[str, Any]], writer: str = "replica-0000-1") -> None:
    file = run.paths.telemetry_file(f"{writer}-{host}")
    file.parent.mkdir(exist_ok=True)
    lines = [{"version": 1, "host": host, "interval_s": 10, "writer": writer}, *samples]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def sample(t_s: float, **fields: object) -> dict[str, Any]:
    return {"time": format_utc(T0_MS + round(t_s * 1000)), **fields}


def gpu(percent: float, power_w: float, energy_j: float | None = None) -> dict[str, Any]:
    counter = {} if energy_j is None else {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": energy_j * 1000}
    return {
        "DCGM_FI_DEV_GPU_UTIL": percent,
        "DCGM_FI_DEV_POWER_USAGE": power_w,
        "DCGM_FI_DEV_FB_USED": 100,
        "DCGM_FI_DEV_FB_TOTAL": 400,
        **counter,
    }


def test_energy_and_use_by_hand(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1)
    run.at(40).epoch(1, 1, correct=300).at(80).epoch(1, 2, correct=320).end(100)
    write_samples(
        run, "a", [sample(t, accelerators=[gpu(80, 300), gpu(60, 100)], cpu_power_w=50.0) for t in (-10, 110)]
    )
    counted = [sample(t, accelerators=[gpu(100, 999, 1000 + 10 * t)]) for t in (0, 50, 100)]
    write_samples(run, "b", counted, writer="replica-0001-1")
    result = build_report(read_run(open_run(tmp_path)))
    assert result.energy.accelerators_j == pytest.approx(400 * 100 + 10 * 100)
    assert result.energy.cpus_j == pytest.approx(50 * 100)
    assert result.energy.operations_per_joule == pytest.approx(result.operations_total / 41_000)
    assert result.energy.best_error_j == pytest.approx(0.8 * 41_000)
    assert result.energy.official_error_j == pytest.approx(0.4 * 41_000), "300 of 360 is below an error of 0.30"
    assert result.energy.basis == "sensors of accelerators", "b does not report its CPUs"
    assert (result.energy.hosts_measured, result.energy.hosts) == (2, 2)
    a, b = result.usage
    assert (a.samples, a.accelerator_percent) == (0, None), "no sample within the run"
    assert (b.samples, b.accelerator_percent, b.accelerator_memory_percent) == (3, 100.0, 25.0)


def card(name: str, energy_j: float) -> dict[str, Any]:
    return {**gpu(100, 999, energy_j), "uuid": name}


ENERGIES: dict[str, tuple[list[list[dict[str, Any]]], float, float]] = {
    "two cards": ([[card("a", 5e6 + 100 * t), card("b", 7e6 + 100 * t)] for t in range(11)], 2000.0, 0.0),
    "a card is lost": (
        [[card("a", 5e6 + 100 * t), card("b", 7e6 + 100 * t)][: 2 if t < 6 else 1] for t in range(11)],
        1500.0,
        0.25,
    ),
    "the first card is lost, so that the other one takes its place": (
        [[card("a", 5e6 + 100 * t), card("b", 7e6 + 100 * t)][0 if t < 6 else 1 :] for t in range(11)],
        1500.0,
        0.25,
    ),
    "a card is away for a while": (
        [[card("a", 5e6 + 100 * t), card("b", 7e6 + 100 * t)][: 1 if 3 <= t < 6 else 2] for t in range(11)],
        2000.0,
        0.0,
    ),
    "the driver is loaded again": (
        [[card("a", 5e6 + 100 * t if t < 6 else 100 * (t - 6) + 30)] for t in range(11)],
        1000.0,
        0.1,
    ),
    "young counters": ([[card("a", 100 * t if t < 6 else 100 * (t - 6) + 30)] for t in range(11)], 1000.0, 0.1),
    "a counter at each of several resets": (
        [[card("a", [0, 100, 10, 110, 20, 120, 30, 130, 40, 140, 240][t])] for t in range(11)],
        1000.0,
        0.4,
    ),
}
"""Samples every 10 s of a run of 100 s; the joules, and the share of the time without them.

What a card used around a reset is estimated from its power before and after it.
"""


@pytest.mark.parametrize("case", ENERGIES)
def test_energy_is_counted_card_by_card(tmp_path: Path, case: str) -> None:
    samples, joules, uncovered = ENERGIES[case]
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(40).epoch(1, 1).end(100)
    write_samples(run, "a", [sample(10 * t, accelerators=cards) for t, cards in enumerate(samples)])
    found = build_report(read_run(open_run(tmp_path))).energy
    assert found.accelerators_j == pytest.approx(joules)
    assert found.uncovered_share == pytest.approx(uncovered)


def test_energy_of_a_card_goes_on_in_the_file_of_another_process(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).end(100)
    for writer, times in (("replica-0000-1", range(0, 6)), ("replica-0000-2", range(6, 11))):
        write_samples(run, "a", [sample(10 * t, accelerators=[card("a", 10.0 * t)]) for t in times], writer)
    assert build_report(read_run(open_run(tmp_path))).energy.accelerators_j == pytest.approx(100)


def test_samples_are_corrected_by_the_clock_of_their_writer(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100, offset_ms=60_000).end(100)
    write_samples(run, "a", [sample(t + 60, cpu_percent=float(t)) for t in (0, 100)])
    (node,) = read_run(open_run(tmp_path)).telemetry.nodes
    assert list(node.column("time_ms")) == [T0_MS, T0_MS + 100_000]


def test_unreadable_samples_are_counted_and_the_rest_is_used(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).end(100)
    write_samples(run, "a", [sample(10, cpu_percent=50.0)])
    with run.paths.telemetry_file("replica-0000-1-a").open("a") as stream:
        stream.write(
            '{"time": "never"}\nnot json\n[]\n{"time": "2023-11-14T22:13:30.000Z", "cpu_percent": "x"}\n{"torn'
        )
    read = read_run(open_run(tmp_path)).telemetry
    assert sum(read.unreadable.values()) == 5
    assert read.nodes[0].mean("cpu_percent", T0_MS, T0_MS + 100_000) == 50.0


def test_means_over_nodes_in_bins(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=2).end(100)
    write_samples(run, "a", [sample(10, cpu_percent=20.0), sample(20, cpu_percent=40.0)])
    write_samples(run, "b", [sample(15, cpu_percent=90.0)], writer="replica-0001-1")
    binned = read_run(open_run(tmp_path)).telemetry.binned(
        "cpu_percent", np.array([T0_MS, T0_MS + 50e3, T0_MS + 100e3])
    )
    assert binned[0] == pytest.approx((30 + 90) / 2)
    assert np.isnan(binned[1])
