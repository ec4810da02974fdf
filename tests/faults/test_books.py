"""Books that find what is wrong in a history list, and slopes that find what grows."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.faults.books import overlaps, recorded, reported, unclosed, wrong_ends
from tests.faults.campaign import parse
from tests.faults.loads import LOADS
from tests.faults.recount import operations_total
from tests.faults.soak import LEAST_SAMPLES, Growth, Sample
from tests.support.hand_made import HandMadeRun
from tests.unit.analysis.science.runs import run_of_four


def write(output: Path, name: str, *records: Mapping[str, object]) -> None:
    folder = output / "history"
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps(
            {"writer": name, "time": f"2026-01-01T00:00:{body.get('at', 0):02d}Z", "data": body, "sum": "x"},
            separators=(",", ":"),
        )
        for body in records
    ]
    (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def test_lost_and_doubled_epochs_are_found(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/primary.log").write_text("x INFO trial 1 completed epoch 3\n")
    write(tmp_path, "primary-1", {"type": "epoch_witnessed", "trial": 1, "epoch": 2})
    write(tmp_path, "replica-0000-1", *({"type": "epoch", "trial": 1, "epoch": epoch} for epoch in (1, 1, 2)))
    assert reported(tmp_path) - set(recorded(tmp_path)) == {(1, 3)}
    assert recorded(tmp_path)[(1, 1)] == 2


@pytest.mark.parametrize(("until", "count"), [(4, 0), (6, 1)])
def test_primaries_at_work_at_once_are_found(tmp_path: Path, until: int, count: int) -> None:
    write(tmp_path, "primary-9", {"type": "phase", "at": 1}, {"type": "phase", "at": until})
    write(tmp_path, "primary-10", {"type": "phase", "at": 5})
    assert overlaps(tmp_path) == count


def test_jobs_that_are_not_closed_once_are_found(tmp_path: Path) -> None:
    issued = [{"type": "job_issued", "trial": trial, "replica": 0} for trial in (1, 2, 3)]
    closed = [{"type": "trial_closed", "trial": trial} for trial in (2, 2)]
    write(tmp_path, "primary-1", *issued, *closed)
    assert unclosed(tmp_path) == [1, 2]


def test_a_run_whose_deadline_passed_without_a_primary_is_counted_as_the_report_does(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run", {"run.duration": 100}).at(0).release(100).at(1).start_trial(1)
    run.at(5).epoch(1, 1).at(120).epoch(1, 2)
    assert operations_total(run.paths.root) > 0
    assert wrong_ends(run.paths.root) == []


MODELS = {"science": {"workloads": ["hepcnn"], "instances": 2}}


def course(trial: int, model: int, *epochs: int, ends: bool = True) -> list[dict[str, object]]:
    """The records of a trial of a model."""
    issued = {"type": "job_issued", "trial": trial, "workload": "hepcnn", "instance": model}
    trained = [{"type": "epoch", "trial": trial, "epoch": epoch} for epoch in epochs]
    return [issued, *trained, *([{"type": "trial_ended", "trial": trial, "reason": "early_stop"}] if ends else [])]


@pytest.mark.parametrize(
    ("records", "flaw"),
    [
        ([*course(1, 0, 1, 2, ends=False), *course(2, 1, 1), *course(3, 0, 2, 3)], None),
        ([*course(1, 0, ends=False), *course(2, 1, 1), *course(3, 0, ends=False), *course(4, 0, 1, ends=False)], None),
        ([*course(1, 0, 1)], "was never given out"),
        ([*course(1, 0, 1), *course(2, 1, 1, ends=False)], "ended 0 times"),
        ([*course(1, 0, 1), *course(2, 1, 1), *course(3, 1, 1)], "ended 2 times"),
        ([*course(1, 0, 1), *course(2, 1, 1), *course(3, 0, ends=False)], "was given out again after trial 1"),
        ([*course(1, 0, 1, 3), *course(2, 1, 1)], "has the epochs [1, 3]"),
    ],
)
def test_models_that_do_not_end_once_are_found(records: list[dict[str, object]], flaw: str | None) -> None:
    found = LOADS["science"].flaws([*records, {"type": "run_ended", "reason": "completed"}], MODELS)
    assert len(found) == 0 if flaw is None else any(flaw in each for each in found)
    late = LOADS["science"].flaws([*records, {"type": "run_ended", "reason": "deadline"}], MODELS)
    assert late == [each for each in found if "never" not in each and "ended 0" not in each]


def test_the_operations_of_models_are_counted_as_the_report_does(tmp_path: Path) -> None:
    run = run_of_four(tmp_path)
    assert operations_total(run.paths.root) > 0
    assert wrong_ends(run.paths.root) == []


def growing(bytes_per_hour: float = 0.0, descriptors_per_hour: float = 0.0) -> Growth:
    samples = [
        Sample(
            5.0 * n,
            30 + round(descriptors_per_hour * 5 * n / 3600) + n % 3,
            round(40e6 + bytes_per_hour * 5 * n / 3600 + (5e6 if n % 7 == 0 else 0)),
        )
        for n in range(2 * LEAST_SAMPLES)
    ]
    return Growth(samples, {1: samples})


def test_what_grows_is_found_and_what_goes_up_and_down_is_not() -> None:
    assert growing(bytes_per_hour=0.5e6).flaws() == []
    assert "MB an hour" in growing(bytes_per_hour=2e6).flaws()[0]
    assert len(growing(descriptors_per_hour=60).flaws()) == 2, "of the primary and of the agent"
    assert "too few" in Growth(growing().primary[:9]).flaws()[0]


@pytest.mark.parametrize("option", ["--under", "--menu", "--suite"])
def test_a_campaign_refuses_names_that_it_does_not_know(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parse([option, "nonsense"])
    assert refused.value.code == 2
    assert "unknown: nonsense; known:" in capsys.readouterr().err
