"""Hardware counters: what `perf` prints, and reasons in words where nothing is counted."""

from pathlib import Path

import pytest

from aiperf import host
from replica.measure.profile.step import FLOATING_POINT, CpuCounters, gpu_reason, parse, why_not

PRINTED = """# started on Mon Nov 23 09:00:00 2026

520.85;msec;task-clock;520850000;100.00;1.036;CPUs utilized
<not supported>;;cycles:u;0;100.00;;
<not counted>;;instructions:u;0;0.00;;
120;;fp_arith_inst_retired.scalar_single;1;100.00;;
10;;fp_arith_inst_retired.256b_packed_single:u;1;100.00;;
"""


def test_counts_and_reasons_are_read() -> None:
    found = parse(PRINTED)
    assert found.values["task-clock"] == 520.85
    assert "this machine shows no such counter" in found.missing["cycles"]
    assert found.missing["instructions"] == "not counted"
    assert found.floating_point == 120 + 10 * 8
    assert len(FLOATING_POINT) == 4


def test_what_perf_cannot_do_is_said_in_its_words() -> None:
    found = parse("", "Error:\nNo permission to enable task-clock event.\n")
    assert found.missing == {"cpu": "perf failed: No permission to enable task-clock event."}
    assert found.floating_point is None


def grant(capabilities: int) -> None:
    """Give this process capabilities on the imitated machine."""
    status = host.ROOT / "proc/self/status"
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(f"Name:\tpython\nCapEff:\t{capabilities:016x}\n")


def test_a_kernel_that_forbids_counting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(host, "ROOT", tmp_path)
    level = tmp_path / "perf_event_paranoid"
    level.write_text("4\n")
    capabilities = {"none": 0, "CAP_PERFMON": 1 << 38, "CAP_SYS_ADMIN": 1 << 21, "root in a container": 0xA80425FB}
    for name, bits in capabilities.items():
        grant(bits)
        refused = "" if name.startswith("CAP") else "kernel.perf_event_paranoid is 4; 2 or less allows it"
        assert (why_not(level) or "").removeprefix("not permitted: ") == refused, name
    level.write_text("2\n")
    assert why_not(level) is None
    assert why_not(tmp_path / "missing") == "this kernel has no performance events"
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert why_not(level) == "perf is not installed"


def test_a_process_counts_itself_or_says_why_not() -> None:
    counters = CpuCounters()
    with counters.counting():
        sum(range(100_000))
    assert counters.found.values or counters.found.missing


def test_gpus_that_are_not_there_have_no_counters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("replica.measure.profile.step.find_accelerators", lambda: ())
    assert gpu_reason() == "no GPU"
    monkeypatch.setattr("replica.measure.profile.step.find_accelerators", lambda: ("one",))
    monkeypatch.setattr(host, "ROOT", tmp_path)
    grant(0)
    parameters = tmp_path / "proc" / "driver" / "nvidia" / "params"
    parameters.parent.mkdir(parents=True)
    assert gpu_reason().startswith("not an NVIDIA GPU")
    parameters.write_text("RmProfilingAdminOnly: 1\n")
    assert gpu_reason().startswith("not permitted: the driver keeps counters for administrators")
    parameters.write_text("RmProfilingAdminOnly: 0\n")
    assert "Nsight Compute" in gpu_reason()
