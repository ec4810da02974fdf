"""The pace of a training by its records, and that of its repetition."""

import json
from pathlib import Path

import pytest

from aiperf.host import this_host
from aiperf.machine.node import shared_cpus
from aiperf.processes import cpu_seconds_of
from analysis.reading.run_data import read_run
from referee.audit import repetitions
from referee.audit.cost import cost_line, cost_of
from referee.audit.draws import Claim
from referee.audit.findings import AuditResult
from referee.audit.pace import Mark, claimed_pace, difference_of_paces, other_device, repeated_pace
from referee.audit.procedure import AuditOrder, audit
from referee.audit.recorded import Recorded
from referee.audit.repetitions import Repetition
from tests.support.driver import FakeDriver
from tests.support.hand_made import HandMadeRun


def marks(*parts: tuple[int, int, float | None]) -> list[Mark]:
    return [Mark(1000 + t_ms, images, cpu_s) for t_ms, images, cpu_s in parts]


def test_the_pace_of_a_repetition_is_that_of_its_fastest_part() -> None:
    slow_start = marks((0, 0, None), (4000, 64, None), (5000, 192, None), (5100, 256, None), (7000, 320, None))
    assert repeated_pace(slow_start, None) == 128, "the part of 100 ms is too short"
    assert repeated_pace(slow_start[:1], None) is None
    assert repeated_pace([], None) is None


def test_on_cpus_other_work_on_the_machine_does_not_count() -> None:
    """100 images in 10 s, of which the training had the CPUs for two."""
    crowded = marks((0, 0, 30.0), (10_000, 100, 32.0))
    assert repeated_pace(crowded, 1) == 50
    assert repeated_pace(crowded, 2) == 100
    assert repeated_pace(marks((0, 0, 30.0), (10_000, 100, 42.0)), 1) == 10, "the wall clock is in favour"
    assert repeated_pace(marks((0, 0, None), (10_000, 100, None)), 1) is None, "nobody can say how much it had"


def test_the_cpu_time_of_a_process_that_is_gone_is_unknown() -> None:
    assert cpu_seconds_of(2**22 + 1) is None
    own = cpu_seconds_of(1)
    assert own is None or own >= 0


def trained(root: Path, device: str | None = "NVIDIA H200", each_s: float = 20) -> HandMadeRun:
    """A run of one training of three epochs."""
    run = HandMadeRun(root)
    run.hyperparameters = {"batch_size": 64, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}
    run.release(100).at(1).start_trial(1)
    run.built(1, devices=(device or "cpu",))
    for epoch in (1, 2, 3):
        run.at(1 + epoch * each_s).epoch(1, epoch)
    run.end_trial(1)
    run.support(100, device)
    return run.end(100)


def test_the_claimed_pace_counts_evaluated_images_by_their_operations(tmp_path: Path) -> None:
    data = read_run(trained(tmp_path).paths)
    cost = data.work.costs[1]
    found = claimed_pace(data, Claim(1, 2, 1))
    assert found == pytest.approx(cost.work(1437, 360) / cost.work(1, 0) / 22)


def test_short_epochs_are_looked_at_together(tmp_path: Path) -> None:
    data = read_run(trained(tmp_path, each_s=4).paths)
    assert claimed_pace(data, Claim(1, 1, 1)) == claimed_pace(data, Claim(1, 3, 1)), "12 s together"


def test_paces_of_other_devices_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver.remove(monkeypatch.setattr)
    data = read_run(trained(tmp_path / "gpu").paths)
    assert other_device(data, data.ledger.trials[1]) == "the run had NVIDIA H200, this machine has none"
    on_cpus = trained(tmp_path / "cpu", None)
    data = read_run(on_cpus.paths)
    assert "this machine has" in other_device(data, data.ledger.trials[1])
    here = {"0": {"host": "node-0", "cpu_count": shared_cpus(), "cpu_model": this_host().cpu_model()}}
    on_cpus.paths.system.write_text(json.dumps(here))
    data = read_run(on_cpus.paths)
    assert other_device(data, data.ledger.trials[1]) == ""


def test_the_pace_of_a_node_that_was_exchanged_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The description is that of the node that came later, and as fast as this machine."""
    FakeDriver.remove(monkeypatch.setattr)
    run = HandMadeRun(tmp_path).release(100).at(1).start_trial(1).built(1, devices=("cpu",)).at(20).epoch(1, 1)
    run.at(30).lose(0)
    run.at(40).rejoin(0).start_trial(2, resumes=1).built(2, devices=("cpu",)).at(60).epoch(2, 2).end(100)
    here = {"0": {"host": "node-1", "cpu_count": shared_cpus(), "cpu_model": this_host().cpu_model()}}
    run.paths.system.write_text(json.dumps(here))
    data = read_run(run.paths)
    assert data.damages == ()
    assert other_device(data, data.ledger.trials[1]) == "the run does not describe its node"
    assert other_device(data, data.ledger.trials[2]) == ""


@pytest.mark.parametrize(
    ("claimed", "on_cpus", "passed"),
    [
        (100, False, True),
        (149, False, True),
        (160, False, False),
        (240, True, True),
        (260, True, False),
        (10, False, True),
    ],
)
def test_a_claim_may_be_somewhat_faster(claimed: float, on_cpus: bool, passed: bool) -> None:
    found, within = difference_of_paces(claimed, 100, on_cpus)
    assert within == passed
    assert f"the claim is {claimed / 100:.2g} of it" in found


def audited(run: HandMadeRun, monkeypatch: pytest.MonkeyPatch, images_per_s: float | None) -> AuditResult:
    """Audit with a repetition of this pace, by the same devices."""

    async def repeat(*_: object) -> Repetition:
        return Repetition(None, (), images_per_s)

    monkeypatch.setattr(repetitions, "repeat", repeat)
    monkeypatch.setattr("referee.audit.recorded.other_device", lambda *_: "")
    return audit(run.paths, AuditOrder("word", draws=1))


def test_an_inflated_pace_fails_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path)
    fast, slow, none = (audited(run, monkeypatch, images_per_s) for images_per_s in (70.0, 20.0, None))
    assert {finding.passed for finding in fast.findings if finding.check == "pace"} == {True}
    assert {finding.passed for finding in slow.findings if finding.check == "pace"} == {False}
    assert not [finding for finding in none.findings if finding.check == "pace"]
    assert any(note.startswith("the pace of trials 1: the repetition was too short") for note in none.notes)


def test_the_cost_of_an_audit_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, lines = trained(tmp_path), list[str]()

    async def repeat(*_: object) -> Repetition:
        return Repetition(None, ())

    monkeypatch.setattr(repetitions, "repeat", repeat)
    data = read_run(run.paths)
    recorded = Recorded(run.paths, data)
    pace = recorded.pace(Claim(1, 3, 0))
    assert pace is not None
    assert cost_of(data, recorded, [1], 2) == pytest.approx(2 * 64 / pace)
    evaluated = 360 * data.work.costs[1].work(0, 1) / data.work.costs[1].work(1, 0)
    assert cost_of(data, recorded, [1], 2, epochs=1) == pytest.approx((1437 + evaluated) / pace)
    assert cost_of(data, recorded, [1], 2, epochs=9) == pytest.approx(3 * (1437 + evaluated) / pace), "it has three"
    assert cost_of(data, recorded, [7], 2) == 0
    assert cost_line(data, 4.0) == "about 4 accelerator seconds, 4.0 % of the run's"
    assert cost_line(data, 6.0).endswith("6.0 % of the run's: more than 5 %; ask for fewer --draws or --steps")
    audit(run.paths, AuditOrder("word", draws=1), report=lines.append)
    assert "accelerator seconds" in lines[0]
