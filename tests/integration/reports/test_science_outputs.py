"""What is written of scientific workloads: page, tables, figures, logs, and what verbs print."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aiperf.run_directory.paths import open_run
from analysis.output.artifacts import write_report
from analysis.output.tables import print_report
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.results.comparison import compare
from analysis.results.science import look_at_workloads, rank_workloads
from analysis.results.source import RunResult, read_result
from analysis.results.status import run_status
from dashboard.wording import sentence_of
from dashboard.work import Answer
from tests.support.hand_made import T0_MS, aiperf_here
from tests.support.science.hand_made import ScienceRun
from tests.support.science.mlperf import complaints
from tests.unit.analysis.science.runs import officially, one_model, run_of_four


def written(run: ScienceRun) -> tuple[Report, Path]:
    data = read_run(open_run(run.paths.root))
    report = build_report(data)
    return report, write_report(run.paths.report, data, report)


def test_the_page_has_results_and_curves_and_nothing_of_a_search(tmp_path: Path) -> None:
    report, page = written(run_of_four(tmp_path))
    text = page.read_text()
    parts = (
        'id="workloads"',
        'id="results"',
        'id="rules"',
        'id="time"',
        "not reached",
        "accuracy at least 0.85",
        "mean absolute error at most 0.33",
        "3 of 4 models of 2 workloads",
    )
    for part in (report.final_line, *parts):
        assert part in text
    for place in (0, 1):
        for against in ("time", "operations"):
            assert f'id="plot-quality-{place}-{against}"' in text
    for absent in ('id="best"', 'id="trials"', 'id="statistics"', "regulated score", "error (1 - top-1)"):
        assert absent not in text
    charts = json.loads(text.partition('id="charts">')[2].partition("</script>")[0])
    assert {f"plot-quality-{n}-{kind}" for n in (0, 1) for kind in ("time", "operations")} <= {
        chart["target_id"] for chart in charts
    }


def test_tables_and_figures_have_every_model_and_epoch(tmp_path: Path) -> None:
    report, page = written(run_of_four(tmp_path))
    tables = {file.stem: pd.read_csv(file) for file in (page.parent / "tables").glob("*.csv")}
    assert not {"trials", "hyperparameters"} & set(tables)
    assert tables["workloads"].workload.to_list() == ["resnet-hep", "cosmoflow"]
    assert list(zip(tables["models"].workload, tables["models"].instance, strict=True)) == [
        ("resnet-hep", 0),
        ("resnet-hep", 1),
        ("cosmoflow", 0),
        ("cosmoflow", 1),
    ]
    assert tables["models"].time_to_quality_s.isna().to_list() == [False, False, False, True]
    quality = tables["quality"]
    assert len(quality) == sum(len(model.curve) for part in report.workloads for model in part.models) == 9
    assert set(tables["model_trials"].id) == {1, 2, 3, 4, 5}
    figures = {file.name for file in (page.parent / "figures").iterdir()}
    assert {"quality-resnet-hep.svg", "quality-cosmoflow.png"} <= figures
    assert not [name for name in figures if name.startswith(("accuracy", "architectures", "lineage"))]


def test_metrics_leave_out_what_a_search_has(tmp_path: Path) -> None:
    _, page = written(run_of_four(tmp_path))
    names = {line.split("{")[0] for line in (page.parent / "metrics.txt").read_text().splitlines() if line[0] != "#"}
    assert {"aiperf_score_ops", "aiperf_peak_ops", "aiperf_sustained_ops"} <= names
    assert not {"aiperf_error", "aiperf_trials", "aiperf_regulated_score_ops"} & names


def test_the_terminal_shows_what_the_targets_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, _ = written(run_of_four(tmp_path))
    print_report(report, None)
    *_, last = capsys.readouterr().out.splitlines()
    assert last == "AIPerf-science: workloads=2 reached=1 seconds=66.000 status=UNOFFICIAL"


def test_the_verb_prints_one_document_with_the_workloads(tmp_path: Path) -> None:
    run = run_of_four(tmp_path / "run")
    done = aiperf_here("report", run.paths.root, "--format", "json")
    found = json.loads(done.stdout)["workloads"]
    assert done.stderr.splitlines()[-1].startswith("AIPerf-science: workloads=2 reached=1 ")
    names = {
        "workload",
        "framework",
        "size",
        "instances",
        "quality",
        "target",
        "reached",
        "time_to_quality_s",
        "epochs_to_quality",
        "cost_to_quality",
        "energy_to_quality_j",
        "sustained_ops",
        "peak_ops",
        "valid_ops",
    }
    assert all(names <= set(part) for part in found)
    assert [part["reached"] for part in found] == [2, 1]
    assert aiperf_here("verify", run.paths.root).returncode == 0
    checked = aiperf_here("check", run.paths.root)
    assert (checked.returncode, checked.stdout.splitlines()[-2]) == (0, "verdict: unofficial")


def test_a_comparison_puts_workloads_of_one_framework_and_size_side_by_side(tmp_path: Path) -> None:
    first, second = (run_of_four(tmp_path / name).paths.root for name in ("a", "b"))
    other = ScienceRun(tmp_path / "c", {"science.instances": 1, "training.framework": "torch"}).at(0).ready(60, 0)
    other.at(1).issue(1, "resnet-hep").at(2).begin(1).phase(1, "train").at(9).measured(1, 1, accuracy=0.9).done(1)
    other.complete(10)
    same = {item.name: item for item in compare(read_result(first), read_result(second)).measures}
    time = same["resnet-hep tensorflow rehearsal: time_to_quality_s"]
    assert (time.first, time.ratio, time.worse) == (time.second, 1.0, False)
    assert not {"error", "regulated_score_ops"} & set(same)
    apart = {item.name: item for item in compare(read_result(first), read_result(other.paths.root)).measures}
    assert apart["resnet-hep tensorflow rehearsal: time_to_quality_s"].second is None
    assert apart["resnet-hep torch rehearsal: time_to_quality_s"].second == 8.0


def test_the_status_says_how_many_models_reached_their_target(tmp_path: Path) -> None:
    run = run_of_four(tmp_path)
    data = read_run(run.paths)
    status = run_status(data, build_report(data), None, T0_MS + 70_000)
    assert (status.trials, status.models, status.reached, status.ended) == (5, 4, 3, "completed")
    assert (status.state, status.next) == ("ended", f"aiperf report {run.paths.root}")
    assert [(replica.trial, replica.epochs) for replica in status.replicas] == [(2, 1), (4, 1), (5, 3)], "slowest first"
    assert [(replica.workload, replica.quality) for replica in status.replicas] == [
        ("resnet-hep", 0.871),
        ("resnet-hep", 0.871),
        ("cosmoflow", 0.3301),
    ]
    first, second = status.workloads
    assert (first.measure, first.value, first.target, first.models, first.reached) == ("accuracy", 0.871, 0.85, 2, 2)
    assert (second.measure, second.value, second.reached) == ("mean_absolute_error", 0.3299, 1)
    words = (
        "3 of 4 models reached the target; best resnet-hep accuracy 0.8710 (at least 0.85), "
        "cosmoflow mean absolute error 0.3299 (at most 0.33)"
    )
    assert words in sentence_of(Answer(status=status))
    shown = aiperf_here("status", run.paths.root).stdout
    assert words in shown
    assert "accuracy" not in shown.replace(words, "")


def cosmoflow(root: Path, **measures: float) -> Path:
    """The log of a short official run of one model."""
    return log_of(root, "cosmoflow", {"mean_absolute_error": 0.124}, {"mean_absolute_error": 0.4}, measures)


def log_of(
    root: Path, workload: str, target: dict[str, float], first: dict[str, float], second: dict[str, float]
) -> Path:
    """The log of a short official run of one model, with the measures of its two epochs."""
    run = (
        ScienceRun(
            root,
            {
                "science.size": "official",
                "science.instances": 1,
                "science.workloads": [workload],
                "run.name": "Cluster",
            },
        )
        .at(0)
        .ready(600, 0)
    )
    steps: dict[str, Any] = {
        "batch_size": 4,
        "learning_rate": 0.001,
        "optimiser": "sgd",
        "warmup_epochs": 4,
        "warmup_factor": 0.25,
        "decay_epochs": "32,64",
        "decay_factors": "0.25,0.125",
        "dropout": 0.5,
        "weight_decay": 0.0,
    }
    run.at(1).issue(1, workload).at(2)
    run.begin(1, hyperparameters=steps, target=target).phase(1, "train")
    run.at(20).phase(1, "evaluate").at(22).measured(1, 1, **first).phase(1, "train")
    run.at(40).phase(1, "evaluate").at(42).measured(1, 2, **second).stop(1).complete(43)
    written(run)
    return run.paths.report / "mllog.txt"


def test_the_checker_of_mlperf_hpc_accepts_a_log_of_cosmoflow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert complaints(cosmoflow(tmp_path / "a", mean_absolute_error=0.12), caplog) == []


def test_the_checker_refuses_nothing_but_a_quality_that_was_not_reached(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = cosmoflow(tmp_path, mean_absolute_error=0.2)
    (complaint,) = complaints(log, caplog)
    assert complaint.startswith("Failed checks for eval_error")
    events = [json.loads(line.removeprefix(":::MLLOG ")) for line in log.read_text().splitlines()]
    assert [event["time_ms"] for event in events] == sorted(event["time_ms"] for event in events)
    assert [event["value"] for event in events if event["key"] == "eval_accuracy"] == [0.4, 0.2]
    times = {event["key"]: event["time_ms"] - T0_MS for event in events}
    assert (times["run_start"], times["eval_start"], times["eval_stop"]) == (1000, 40_000, 42_000)
    assert next(event["metadata"] for event in events if event["key"] == "run_stop") == {"status": "aborted"}


def keys_of(log: Path) -> set[str]:
    return {json.loads(line.removeprefix(":::MLLOG "))["key"] for line in log.read_text().splitlines()}


def test_extreme_weather_logs_the_keys_of_cosmoflow(tmp_path: Path) -> None:
    first, second = {"map@0.5": 0.3, "map@0.1": 0.4}, {"map@0.5": 0.36, "map@0.1": 0.5}
    weather = log_of(tmp_path / "a", "frcnn-ewa", {"map@0.5": 0.35}, first, second)
    assert keys_of(weather) == keys_of(cosmoflow(tmp_path / "b", mean_absolute_error=0.12)) - {"eval_error"}


def test_several_models_have_a_log_each(tmp_path: Path) -> None:
    run = run_of_four(tmp_path)
    _, page = written(run)
    logs = sorted(str(file.relative_to(page.parent)) for file in page.parent.glob("mllog/*/*.txt"))
    assert logs == [f"mllog/{name}/result_{n}.txt" for name in ("cosmoflow", "resnet-hep") for n in (0, 1)]
    assert not (page.parent / "mllog.txt").exists()
    stop = json.loads((page.parent / logs[0]).read_text().splitlines()[-1].removeprefix(":::MLLOG "))
    assert (stop["key"], stop["time_ms"], stop["metadata"]) == ("run_stop", T0_MS + 34_000, {"status": "success"})


def test_a_ranking_keeps_workloads_frameworks_and_sizes_apart(tmp_path: Path) -> None:
    run = run_of_four(tmp_path / "a", **{"run.name": "one"})
    other = one_model(tmp_path / "b")
    results = [read_result(each.paths.root) for each in (run, other, run)]
    rows = rank_workloads(results)
    assert [(row.workload, row.system, row.rank) for row in rows] == [
        ("cosmoflow", "one", None),
        ("cosmoflow", "two", None),
        ("resnet-hep", "two", None),
        ("resnet-hep", "one", None),
    ]
    official = rank_workloads([*officially(results[:2]), *officially(results[:1])])
    assert [(row.workload, row.system, row.rank) for row in official][2:] == [
        ("resnet-hep", "two", 1),
        ("resnet-hep", "one", 2),
    ]
    forged = replace(results[0], contradictions=("plan 1 differs",))
    rows = rank_workloads([forged, results[1]])
    assert [(row.system, row.status, row.time_to_quality_s, row.time_text) for row in rows] == [
        ("two", "unofficial", None, "not reached"),
        ("one", "invalid", None, "-"),
        ("two", "unofficial", 8.0, "8 s"),
        ("one", "invalid", None, "-"),
    ]
    assert [(row.sustained_ops, row.energy_to_quality_j) for row in rows if row.system == "one"] == [(None, None)] * 2
    found = json.loads(aiperf_here("rank", run.paths.root, other.paths.root, "--format", "json").stdout)
    assert found["rows"] == []
    assert [row["time_to_quality_s"] for row in found["workloads"]][2:] == [8.0, pytest.approx(24.685)]
    page = tmp_path / "ranking.html"
    shown = aiperf_here("rank", run.paths.root, "--html", page).stdout
    html = page.read_text()
    assert "<h2>resnet-hep on tensorflow, rehearsal size</h2>" in html
    assert "No official run yet" not in html, "of a search, of which there is no run here"
    assert "resnet-hep on tensorflow, rehearsal size" in shown


def test_a_copy_of_another_run_is_named_and_moves_no_honest_row(tmp_path: Path) -> None:
    """With another head, another release, and a time to quality that is half as long."""
    runs = (run_of_four(tmp_path / "a", **{"run.name": "one"}), one_model(tmp_path / "b"))
    results = [read_result(each.paths.root) for each in runs]
    own = officially(results)
    faster = tuple(part.model_copy(update={"time_to_quality_s": 4.0}) for part in own[1].report.workloads)
    report = own[1].report.model_copy(update={"workloads": faster})
    copy = replace(own[1], origin=Path("copy"), report=report, head="other", identity="later")

    def rows(*given: RunResult) -> dict[str, list[tuple[str, int | None, str]]]:
        found: dict[str, list[tuple[str, int | None, str]]] = {}
        for row in rank_workloads(given):
            if row.workload == "resnet-hep":
                found.setdefault(row.origin, []).append((row.status, row.rank, row.reasons))
        return found

    alone, names = rows(*own), [str(item.origin) for item in own]
    assert [alone[name][0][1] for name in names] == [2, 1]
    with_copy = rows(*own, copy)
    assert {name: with_copy[name] for name in names} == alone
    (conflict,) = look_at_workloads([*own, copy])[1]
    assert f"{names[1]} and copy are different results with the steps of 1 of 1 epochs in common" in conflict
    contested = {row.origin: row.contested for row in rank_workloads([*own, copy])}
    assert contested == {names[0]: "", names[1]: "copy", "copy": names[1]}
    signed = rows(own[0], replace(own[1], signer="its owner"), copy)
    ((status, rank, reasons),) = signed["copy"]
    assert (status, rank, reasons.split(", ")[-1]) == ("unofficial", None, "copied")
    assert look_at_workloads([*own, replace(own[1], origin=Path("again"))])[0] == (("again", names[1]),)


def test_a_ranking_by_valid_operations_per_second_and_per_watt(tmp_path: Path) -> None:
    run, other = run_of_four(tmp_path / "a", **{"run.name": "one"}), one_model(tmp_path / "b")
    results = [read_result(each.paths.root) for each in (run, other)]
    results = officially(results)
    valid = [next(part for part in item.report.workloads if part.workload == "resnet-hep") for item in results]
    assert valid[0].valid_ops is not None
    assert valid[1].valid_ops is not None
    best = ["one", "two"] if valid[0].valid_ops > valid[1].valid_ops else ["two", "one"]
    by_valid = rank_workloads(results, "valid")
    assert [(row.system, row.rank) for row in by_valid][2:] == [(best[0], 1), (best[1], 2)]
    by_watt = rank_workloads(results, "valid-per-watt")
    assert [(row.system, row.rank) for row in by_watt][2:] == [("one", 1), ("two", None)], "two has no energy"


def test_a_ranking_of_one_suite_and_by_its_own_orders(tmp_path: Path) -> None:
    run = run_of_four(tmp_path).paths.root
    found = json.loads(aiperf_here("rank", run, "--suite", "science", "--by", "valid", "--format", "json").stdout)
    assert (found["order"], found["science_order"], len(found["workloads"])) == ("score", "valid", 2)
    other_suite = aiperf_here("rank", run, "--suite", "automl")
    assert (other_suite.returncode, "none of these runs is of the suite automl" in other_suite.stderr) == (2, True)
    wrong = aiperf_here("rank", run, "--suite", "science", "--by", "regulated")
    assert (wrong.returncode, "--by regulated is not of --suite science" in wrong.stderr) == (2, True)
