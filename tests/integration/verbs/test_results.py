"""The verbs for results on simulated runs, as a user calls them; the page in a real browser."""

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.records.bodies import RunEnded
from tests.support.browser import DESKTOP, open_page
from tests.support.hand_made import SIMULATED, T0_MS, HandMadeRun, aiperf, aiperf_here
from tests.support.processes import ask, family
from tests.support.runs import SMALL_SERIES, Watched, all_have_epochs, report, run_until, wait_for_epochs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ended = run_until(
        tmp_path_factory.mktemp("results") / "first",
        12,
        lambda output: all_have_epochs(output, 2),
        "--replicas",
        2,
        "--name",
        "first",
        "--set",
        "telemetry.interval=1",
        "--set",
        "search.hpo_first_round=2",
        "--set",
        "simulated.fail_trials=[2]",
        page=True,
    )
    assert ended.result.returncode == 0, ended.result.stderr
    return ended.output


def test_report_rank_check_and_archive_agree_exactly(run: Path, tmp_path: Path) -> None:
    found = report(run)
    archive = tmp_path / "first.tar.gz"
    assert aiperf_here("export", run, "--file", archive).returncode == 0
    for origin in (run, archive):
        checked = json.loads(aiperf_here("check", origin, "--format", "json").stdout)
        assert (checked["verdict"], checked["differences"], checked["recomputed"]) == ("simulated", [], True)
        assert [checked[key] for key in ("score_ops", "regulated_score_ops", "error")] == [
            found[key] for key in ("score_ops", "regulated_score_ops", "error")
        ]
    copy, bare = tmp_path / "copy", run / "report" / "report.json"
    shutil.copytree(run, copy)
    ranked = json.loads(aiperf_here("rank", run, archive, copy, bare, "--format", "json").stdout)
    assert [(row["status"], row["source"], row["runs"], row["rank"]) for row in ranked["rows"]] == [
        ("simulated", "recomputed", 1, None),
        ("unverified", "as reported", 1, None),
    ]
    assert {row["score_ops"] for row in ranked["rows"]} == {found["score_ops"]}
    assert [item["kept"] for item in ranked["same"]] == [str(run)] * 2, "a run has one row"
    again = json.loads(aiperf("report", run, "--format", "json", page=True).stdout)
    assert again["timeline"] == found["timeline"]


def test_telemetry_of_a_run_is_in_its_report(run: Path) -> None:
    found = report(run)
    (node,) = found["usage"]
    assert node["samples"] >= 3
    assert 0 < node["cpu_percent"] <= 100
    assert (run / "report" / "figures" / "utilisation.svg").exists()


def test_reports_without_records_are_listed_apart_and_never_ranked(run: Path, tmp_path: Path) -> None:
    document = report(run)
    paths = [run]
    for name, score, status in (("claimed", 2e15, "official"), ("broken", 9e18, "invalid")):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({**document, "name": name, "score_ops": score, "verdict": status}))
        paths.append(file)
    page = tmp_path / "ranking.html"
    shown = aiperf_here("rank", *paths, "--format", "csv", "--html", page)
    rows = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert [(row["rank"], row["system"], row["status"], row["source"]) for row in rows] == [
        ("", "first", "simulated", "recomputed"),
        ("", "claimed", "unverified", "as reported"),
        ("", "broken", "unverified", "as reported"),
    ]
    assert [row["score_ops"] == "" for row in rows] == [False, False, True], "an invalid run has no score"
    assert float(rows[0]["interval_low"]) < float(rows[0]["score_ops"]) < float(rows[0]["interval_high"])
    with open_page(page, DESKTOP) as browser:
        headings = [element.text for element in browser.find_elements("tag name", "h2")]
        links = browser.find_elements("css selector", "table a")
        none = browser.find_element("id", "none").text
    assert headings == ["Official: 0", "Simulated: 1", "Unverified: 2"]
    assert not links, "a submission's own page may say anything"
    assert none.startswith("No official run yet: an official run meets every rule")
    compared = aiperf_here("compare", run, paths[1]).stdout.splitlines()
    assert compared[0].endswith(": simulated")
    assert compared[1].endswith(": unverified (a report.json has no records)")


def test_an_invalid_run_is_exported_with_a_loud_warning(tmp_path: Path) -> None:
    made = HandMadeRun(tmp_path / "run").at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1).end(100)
    file = made.paths.history_file(made.replicas[0].name)
    file.write_bytes(file.read_bytes().replace(b'"correct":300', b'"correct":360'))
    done = aiperf_here("export", tmp_path / "run")
    assert done.returncode == 0
    assert "aiperf: INVALID: this run has no score" in done.stderr
    assert f"{file.name} line 2" in done.stderr


def test_the_score_of_a_failed_run_is_shown_nowhere(run: Path, tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    made = HandMadeRun(failed, {"run.name": "failed"}).at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1)
    made.at(60).primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 60_000))
    assert "score invalid" in aiperf_here("status", failed).stdout.splitlines()[0]
    last = aiperf_here("report", failed).stdout.splitlines()[-1]
    assert last.startswith("AIPerf: score=invalid regulated=invalid error=0.166667 ")
    assert last.endswith(" status=FAILED")
    checked = aiperf_here("check", failed)
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (1, last)
    (row,) = json.loads(aiperf_here("rank", failed, "--format", "json").stdout)["rows"]
    for document in (report(failed), json.loads(aiperf_here("check", failed, "--format", "json").stdout), row):
        assert (document["score_ops"], document["regulated_score_ops"]) == (None, None)
    assert (row["status"], row["ops_per_accelerator"]) == ("invalid", None)
    measures = json.loads(aiperf_here("compare", run, failed, "--format", "json").stdout)["measures"]
    assert measures[0]["second"] is None
    assert aiperf_here("compare", failed, run).returncode == 0
    for file in ("metrics.txt", "mllog.txt"):
        text = (failed / "report" / file).read_text()
        assert "score_ops" not in text
        assert "error" in text
    refused = aiperf("scale", "--from", failed)
    assert (refused.returncode, "none of these runs has a score" in refused.stderr) == (2, True)


def test_a_path_that_cannot_be_ranked_is_named_next_to_the_ranking(run: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign.json").write_text('{"loss": 1}')
    mixed = aiperf_here("rank", run, tmp_path / "foreign.json", tmp_path / "nothing")
    assert mixed.returncode == 1
    assert "first" in mixed.stdout
    assert "foreign.json is JSON, but not a report of aiperf" in mixed.stdout
    assert "nothing is not a directory" in mixed.stdout
    assert aiperf_here("rank", tmp_path / "nothing").returncode == 2


def test_a_comparison_shows_settings_that_differ_and_measures_that_got_worse(run: Path, tmp_path: Path) -> None:
    slow = HandMadeRun(tmp_path / "slow", {"training.learning_rate": 0.2}).at(0).release(100).at(1).start_trial(1)
    slow.at(90).epoch(1, 1, correct=100).end(100)
    shown = aiperf_here("compare", run, tmp_path / "slow")
    assert shown.returncode == 0, shown.stderr
    assert "training.learning_rate" in shown.stdout
    worse = shown.stdout.splitlines()[-1]
    assert worse.startswith("worse in B: score (")
    assert "error (" in worse
    document = json.loads(aiperf_here("compare", tmp_path / "slow", run, "--format", "json").stdout)
    assert not next(measure for measure in document["measures"] if measure["name"] == "score_ops")["worse"]
    stopped = HandMadeRun(tmp_path / "stopped").at(0).release(100).at(1).start_trial(1).at(9).epoch(1, 1)
    stopped.primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 10_000))
    one, other = aiperf_here("compare", tmp_path / "slow", tmp_path / "stopped").stdout.splitlines()[:2]
    assert "interrupted" not in one
    assert other.endswith("; it was interrupted")


def test_a_series_is_run_kept_resumed_and_drawn(tmp_path: Path) -> None:
    output = tmp_path / "series"
    options = ["scale", *SMALL_SERIES, "--counts", "1,2", "--output", str(output)]
    command = [sys.executable, "-m", "aiperf", *options]
    with Watched(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_epochs(output / "replicas-0002")
        kill_tree(process)
    first = (output / "replicas-0001" / "run.json").stat().st_mtime_ns
    done = aiperf(*options, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["replicas"] for row in rows] == [1, 2]
    assert rows[0]["efficiency"] == 1.0
    assert rows[1]["ideal_ops"] == 2 * rows[0]["score_ops"]
    assert rows[1]["efficiency"] == rows[1]["score_ops"] / rows[1]["ideal_ops"]
    assert (output / "replicas-0001" / "run.json").stat().st_mtime_ns == first, "a finished run is kept"
    assert (output / "scaling.svg").exists()
    other = aiperf("scale", *SMALL_SERIES, "--duration", "20m", "--counts", "1", "--output", output)
    assert other.returncode == 2
    assert "holds a series with other options" in other.stderr
    assert [row["ranks"] for row in rows] == [1, 2]
    drawn = aiperf("scale", "--from", output / "replicas-0001", output / "replicas-0002", "--format", "csv")
    assert len(drawn.stdout.splitlines()) == 3


def test_a_run_of_a_series_that_cannot_be_resumed_is_named(tmp_path: Path) -> None:
    late = HandMadeRun(tmp_path / "replicas-0001").at(0).release(10).at(1).start_trial(1)
    refused = aiperf("scale", *SIMULATED, "--duration", "10s", "--counts", "1", "--output", tmp_path)
    assert refused.returncode == 1
    assert "the deadline passed" in refused.stderr
    assert f"move {late.paths.root} away" in refused.stderr


def kill_tree(process: subprocess.Popen[str]) -> None:
    for member in reversed(family(process.pid)):
        ask(member.kill, None)
    process.communicate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scale", "--counts", "1,2"], "name the directory of the series"),
        (["scale", "--counts", "0,x", "--output", "x"], "--counts 0,x: whole numbers above 0"),
        (["scale", "--replicas", "3", "--output", "x"], "--replicas does not apply to a series"),
        (["check", "/nowhere"], "/nowhere is not a directory"),
        (["export", "/tmp"], "is not a run directory"),
        (["compare", "/tmp", "/tmp"], "is not a run directory"),
    ],
)
def test_wrong_usage_is_reported(arguments: list[str], message: str) -> None:
    wrong = aiperf_here(*arguments)
    assert wrong.returncode == 2
    assert message in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_directory_that_cannot_be_written_is_reported_and_another_can_be_named(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("report"))
    (copy / "report").write_text("a file in the way")
    refused = aiperf_here("report", copy)
    assert refused.returncode == 3
    assert "choose another with --output" in refused.stderr
    assert aiperf("report", copy, "--output", tmp_path / "elsewhere", page=True).returncode == 0
    assert (tmp_path / "elsewhere" / "report.html").exists()


def test_a_history_that_cannot_be_read_is_reported(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "history" / "replica-0009-1.jsonl").mkdir()
    refused = aiperf_here("report", copy)
    assert (refused.returncode, "replica-0009-1.jsonl" in refused.stderr) == (3, True)
    assert "Traceback" not in refused.stderr
