"""Acceptance of runs: what is held against what, and its forms for programs."""

import json
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from aiperf.__main__ import main
from aiperf.records.bodies import PhaseBegan
from aiperf.wire.messages import Phase
from tests.support.hand_made import HandMadeRun


def made(root: Path, correct: int = 300) -> Path:
    """A run of one epoch that classifies this many of 360 images correctly."""
    run = HandMadeRun(root, {"training.trainer": "simulated"}).at(0).release(100)
    return run.at(1).start_trial(1).at(60).epoch(1, 1, correct=correct).end(100).paths.root


def two_epochs(root: Path) -> Path:
    run = HandMadeRun(root, {"training.trainer": "simulated"}).at(0).release(100).at(1).start_trial(1)
    return run.at(50).epoch(1, 1, correct=300).at(90).epoch(1, 2, correct=300).end(100).paths.root


def trained(root: Path, storage_s: float = 0.0, input_s: float | None = None) -> str:
    """A run with phases; without `input_s` its waits for images were not measured."""
    run = HandMadeRun(root, {"training.trainer": "simulated"}).at(0).release(100).at(1).start_trial(1)
    phases: list[tuple[float, Phase]] = [(1, "storage")] if storage_s else []
    for at_s, phase in [*phases, (1 + storage_s, "train"), (55, "evaluate")]:
        run.at(at_s).replicas[0].append(PhaseBegan(replica=0, trial=1, phase=phase))
    return str(run.at(60).epoch(1, 1, correct=300, input_s=input_s).end(100).paths.root)


def criteria(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    document = json.loads(capsys.readouterr().out)
    assert document["accepted"] == all(each["accepted"] for each in document["criteria"])
    return {each["measure"]: each for each in document["criteria"]}


def test_a_run_is_as_good_as_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(made(tmp_path / "a"))
    assert main(["accept", run, "--baseline", run, "--share", "1"]) == 0
    assert "not accepted" not in (said := capsys.readouterr().out)
    assert "accepted: " in said


def test_what_is_below_the_share_of_the_baseline_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline, run = str(two_epochs(tmp_path / "a")), str(made(tmp_path / "b"))
    assert main(["accept", run, "--baseline", baseline, "--format", "json"]) == 4
    found = criteria(capsys)
    score = found["score_ops"]
    assert score["accepted"] is False
    assert score["limit"] == pytest.approx(0.95 * float(str(score["reference"])))
    assert found["error"]["accepted"] is True
    assert "duration_s" not in found, "it is neither better nor worse"
    assert main(["accept", run, "--baseline", baseline, "--share", "0.4", "--format", "json"]) == 0
    assert criteria(capsys)["score_ops"]["accepted"] is True
    assert main(["accept", baseline, "--baseline", run, "--format", "json"]) == 0, "better is accepted"


def test_another_machine_than_that_of_the_baseline_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    for name, device in (("a", "NVIDIA H200"), ("b", None)):
        run = HandMadeRun(tmp_path / name, {"training.trainer": "simulated"}).at(0).release(100).at(1).start_trial(1)
        runs.append(str(run.at(60).epoch(1, 1, correct=300).end(100).support(100, device).paths.root))
    main(["accept", runs[1], "--baseline", runs[0]])
    assert "another machine: the accelerator is none, that of the baseline NVIDIA H200" in capsys.readouterr().out
    main(["accept", runs[0], "--baseline", runs[0]])
    assert "another machine" not in capsys.readouterr().out
    main(["compare", *runs, "--format", "json"])
    found = {each["key"]: each for each in json.loads(capsys.readouterr().out)["settings"]}
    assert found["accelerator"] == {"key": "accelerator", "first": "NVIDIA H200", "second": "none"}


def test_an_error_that_rose_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline, run = str(made(tmp_path / "a", correct=300)), str(made(tmp_path / "b", correct=280))
    assert main(["accept", run, "--baseline", baseline, "--format", "json"]) == 4
    assert {name for name, each in criteria(capsys).items() if not each["accepted"]} >= {"error"}


def test_limits_that_follow_from_a_baseline_stand_in_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline, run, limits = str(two_epochs(tmp_path / "a")), str(made(tmp_path / "b")), str(tmp_path / "limits.toml")
    main(["accept", run, "--baseline", baseline, "--write-limits", limits, "--format", "json"])
    by_run = criteria(capsys)
    assert set(tomllib.loads(Path(limits).read_text())) == {"at_least", "at_most"}
    assert main(["accept", run, "--baseline", limits, "--format", "json"]) == 4
    by_limits = criteria(capsys)
    assert by_limits == {name: {**each, "reference": None} for name, each in by_run.items()}
    assert main(["accept", baseline, "--baseline", limits]) == 0


def test_what_was_not_measured_is_not_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text('[at_least]\n"operations per joule" = 1.0\n')
    assert main(["accept", str(made(tmp_path / "a")), "--baseline", str(limits)]) == 4
    assert "operations per joule: not measured, at least 1 is accepted" in capsys.readouterr().out


def test_a_phase_that_did_not_occur_took_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline, run = trained(tmp_path / "a", storage_s=1.0), trained(tmp_path / "b")
    limits = str(tmp_path / "limits.toml")
    main(["accept", run, "--baseline", baseline, "--write-limits", limits])
    assert "share of storage" in Path(limits).read_text()
    capsys.readouterr()
    assert main(["accept", run, "--baseline", limits, "--format", "json"]) == 0
    assert criteria(capsys)["share of storage"]["value"] == 0.0


def test_a_workload_that_the_run_lacks_is_not_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text('[at_least]\n"cosmoflow torch official: reached" = 1\n')
    assert main(["accept", str(made(tmp_path / "a")), "--baseline", str(limits)]) == 4
    assert "cosmoflow torch official: reached: not measured" in capsys.readouterr().out
    limits.write_text('[at_least]\n"cosmoflov torch official: reached" = 1\n')
    assert main(["accept", str(made(tmp_path / "b")), "--baseline", str(limits)]) == 2
    assert "did you mean 'cosmoflow torch official: reached'?" in capsys.readouterr().err


def test_a_wait_that_the_run_no_longer_measures_is_not_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline, run = trained(tmp_path / "a", input_s=5.0), trained(tmp_path / "b")
    limits, wait = str(tmp_path / "limits.toml"), "share of waiting for images in training"
    words = ["accept", run, "--format", "json", "--baseline"]
    assert main([*words, baseline, "--write-limits", limits]) == 4
    found = criteria(capsys)[wait]
    assert (found["value"], found["accepted"]) == (None, False)
    assert main([*words, limits]) == 4
    assert criteria(capsys)[wait]["accepted"] is False
    assert main(["accept", baseline, "--baseline", run]) == 0, "what the baseline lacks has no limit"


def test_junit_has_a_case_for_each_measure_and_a_failure_for_each_rejected_one(tmp_path: Path) -> None:
    limits, junit = tmp_path / "limits.toml", tmp_path / "accept.xml"
    limits.write_text("[at_least]\nscore_ops = 1e30\n[at_most]\nerror = 0.9\n")
    assert main(["accept", str(made(tmp_path / "a\x1b&<b")), "--baseline", str(limits), "--junit", str(junit)]) == 4
    suite = ElementTree.fromstring(junit.read_bytes())
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "2", "1")
    cases = {case.get("name"): case.find("failure") for case in suite.iter("testcase")}
    assert cases.keys() == {"score_ops", "error"}
    assert cases["error"] is None
    failure = cases["score_ops"]
    assert failure is not None
    assert "at least 1e+30 is accepted" in (failure.get("message") or "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[at_least]\nscore_op = 1\n", "did you mean 'score_ops'?"),
        ("[at_least]\nscore_ops = true\n", "the limit of 'score_ops' is not a number"),
        ("[at_most]\nerror = nan\n", "the limit of 'error' is not a number"),
        ("[floors]\nscore_ops = 1\n", "unknown table 'floors'; allowed are at_least and at_most"),
        ("at_least = 3\n", "at_least is no table of measures"),
        ("", "it has no limits"),
    ],
)
def test_a_file_of_limits_that_cannot_be_used_is_an_error(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text(text)
    assert main(["accept", str(made(tmp_path / "a")), "--baseline", str(limits)]) == 2
    assert says in capsys.readouterr().err


def test_a_baseline_without_a_score_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path / "a")
    empty = HandMadeRun(tmp_path / "b", {"training.trainer": "simulated"}).at(0).release(100).end(100).paths
    (empty.history / "primary-1.jsonl").write_text("torn")
    assert main(["accept", str(run), "--baseline", str(empty.root)]) != 0
    assert "b" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["accept", str(run), "--baseline", str(run), "--share", "1.5"])
    limits = tmp_path / "limits.toml"
    limits.write_text("[at_most]\nerror = 0.9\n")
    assert main(["accept", str(run), "--baseline", str(limits), "--share", "0.9"]) == 2
