"""The verbs for results on simulated runs, as a user calls them; the page in a real browser."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.history.records import RunEnded
from testing.browser import DESKTOP, PHONE, open_page
from testing.hand_made import SIMULATED, T0_MS, HandMadeRun, aiperf
from testing.processes import ask, family
from testing.runs import report, wait_for_epochs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("results") / "first"
    done = aiperf(
        "run", *SIMULATED, "--replicas", 2, "--duration", "12s", "--name", "first", "--set", "telemetry.interval=1",
        "--set", "search.hpo_first_round=2", "--set", "simulated.fail_trials=[2]", "--output", output,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return output


def test_report_rank_check_and_archive_agree_exactly(run: Path, tmp_path: Path) -> None:
    found = report(run)
    archive = tmp_path / "first.tar.gz"
    assert aiperf("export", run, "--file", archive).returncode == 0
    for origin in (run, archive):
        checked = json.loads(aiperf("check", origin, "--format", "json").stdout)
        assert (checked["verdict"], checked["differences"], checked["recomputed"]) == ("unofficial", [], True)
        assert [checked[key] for key in ("score_ops", "regulated_score_ops", "error")] == [
            found[key] for key in ("score_ops", "regulated_score_ops", "error")
        ]
    ranked = json.loads(aiperf("rank", run, archive, run / "report" / "report.json", "--format", "json").stdout)
    assert {row["score_ops"] for row in ranked["rows"]} == {found["score_ops"]}
    assert [row["source"] for row in ranked["rows"]].count("recomputed") == 2
    again = json.loads(aiperf("report", run, "--format", "json").stdout)
    assert again["timeline"] == found["timeline"]


def test_telemetry_of_a_run_is_in_its_report(run: Path) -> None:
    found = report(run)
    (node,) = found["usage"]
    assert node["samples"] >= 10
    assert 0 < node["cpu_percent"] <= 100
    assert (run / "report" / "figures" / "utilisation.svg").exists()


def test_a_ranking_has_official_runs_in_order_and_others_apart(run: Path, tmp_path: Path) -> None:
    document = report(run)
    paths = [run]
    for name, score, regulated, status in (
        ("slow", 1e15, 9e15, "official"), ("fast", 2e15, 3e15, "official"), ("broken", 9e18, 9e18, "invalid"),
    ):  # fmt: skip
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({**document, "name": name, "score_ops": score, "regulated_score_ops": regulated,
                                    "verdict": status, "accelerators": 4}))  # fmt: skip
        paths.append(file)
    page = tmp_path / "ranking.html"
    by_score = aiperf("rank", *paths, "--format", "csv", "--html", page)
    rows = list(csv.DictReader(io.StringIO(by_score.stdout)))
    assert [(row["rank"], row["system"], row["status"]) for row in rows] == [
        ("1", "fast", "official"), ("2", "slow", "official"), ("", "first", "unofficial"), ("", "broken", "invalid"),
    ]  # fmt: skip
    assert [row["score_ops"] == "" for row in rows] == [False, False, False, True], "an invalid run has no score"
    assert [row["source"] for row in rows] == ["as reported", "as reported", "recomputed", "as reported"]
    by_regulated = json.loads(aiperf("rank", *paths, "--by", "regulated", "--format", "json").stdout)
    assert [row["system"] for row in by_regulated["rows"][:2]] == ["slow", "fast"]
    with open_page(page, DESKTOP) as browser:
        headings = [element.text for element in browser.find_elements("tag name", "h2")]
    assert headings == ["Official: 2", "Unofficial: 1", "Invalid: 1"]


def test_the_score_of_a_failed_run_is_shown_nowhere(run: Path, tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    made = HandMadeRun(failed, {"run.name": "failed"}).at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1)
    shown = aiperf("status", failed)
    assert "OPS so far" in shown.stdout.splitlines()[0]
    assert json.loads(aiperf("status", failed, "--format", "json").stdout)["score_ops"] > 0
    made.at(60).primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 60_000))
    assert "score invalid" in aiperf("status", failed).stdout.splitlines()[0]
    last = aiperf("report", failed).stdout.splitlines()[-1]
    assert last.startswith("AIPerf: score=invalid regulated=invalid error=0.166667 ")
    assert last.endswith(" status=FAILED")
    checked = aiperf("check", failed)
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (1, last)
    (row,) = json.loads(aiperf("rank", failed, "--format", "json").stdout)["rows"]
    for document in (report(failed), json.loads(aiperf("check", failed, "--format", "json").stdout), row):
        assert (document["score_ops"], document["regulated_score_ops"]) == (None, None)
    assert (row["status"], row["ops_per_accelerator"]) == ("invalid", None)
    measures = json.loads(aiperf("compare", run, failed, "--format", "json").stdout)["measures"]
    assert measures[0]["second"] is None
    assert aiperf("compare", failed, run).returncode == 0
    for file in ("metrics.txt", "mllog.txt"):
        text = (failed / "report" / file).read_text()
        assert "score_ops" not in text
        assert "error" in text
    refused = aiperf("scale", "--from", failed)
    assert (refused.returncode, "none of these runs has a score" in refused.stderr) == (2, True)


def test_a_path_that_cannot_be_ranked_is_named_next_to_the_ranking(run: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign.json").write_text('{"loss": 1}')
    mixed = aiperf("rank", run, tmp_path / "foreign.json", tmp_path / "nothing")
    assert mixed.returncode == 1
    assert "first" in mixed.stdout
    assert "foreign.json is JSON, but not a report of aiperf" in mixed.stdout
    assert "nothing is not a directory" in mixed.stdout
    assert aiperf("rank", tmp_path / "nothing").returncode == 2


def test_a_comparison_shows_settings_that_differ_and_measures_that_got_worse(run: Path, tmp_path: Path) -> None:
    slow = HandMadeRun(tmp_path / "slow", {"training.learning_rate": 0.2}).at(0).release(100).at(1).start_trial(1)
    slow.at(90).epoch(1, 1, correct=100).end(100)
    shown = aiperf("compare", run, tmp_path / "slow")
    assert shown.returncode == 0, shown.stderr
    assert "training.learning_rate" in shown.stdout
    worse = shown.stdout.splitlines()[-1]
    assert worse.startswith("worse in B: score_ops (")
    assert "error (" in worse
    document = json.loads(aiperf("compare", tmp_path / "slow", run, "--format", "json").stdout)
    assert not next(measure for measure in document["measures"] if measure["name"] == "score_ops")["worse"]


def test_a_series_is_run_kept_resumed_and_drawn(tmp_path: Path) -> None:
    output = tmp_path / "series"
    options = ["scale", *SIMULATED, "--duration", "10s", "--counts", "1,2", "--output", str(output)]
    process = subprocess.Popen(
        [sys.executable, "-m", "aiperf", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for_epochs(output / "replicas-0002")  # a run without an epoch has no row
    kill_tree(process)
    first = (output / "replicas-0001" / "run.json").stat().st_mtime_ns
    done = aiperf(*options, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["replicas"] for row in rows] == [1, 2]
    assert rows[0]["efficiency"] == 1.0
    assert rows[1]["ideal_ops"] == 2 * rows[0]["score_ops"]
    assert rows[1]["efficiency"] == rows[1]["score_ops"] / rows[1]["ideal_ops"]
    assert (output / "replicas-0001" / "run.json").stat().st_mtime_ns == first, "a finished run is kept"
    assert (output / "scaling.svg").exists()
    other = aiperf("scale", *SIMULATED, "--duration", "6s", "--counts", "1", "--output", output)
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


def kill_tree(process: subprocess.Popen[bytes]) -> None:
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
    wrong = aiperf(*arguments)
    assert wrong.returncode == 2
    assert message in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_directory_that_cannot_be_written_is_reported_and_another_can_be_named(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("report"))
    (copy / "report").write_text("a file in the way")
    refused = aiperf("report", copy)
    assert refused.returncode == 3
    assert "choose another with --output" in refused.stderr
    assert aiperf("report", copy, "--output", tmp_path / "elsewhere").returncode == 0
    assert (tmp_path / "elsewhere" / "report.html").exists()


def test_a_history_that_cannot_be_read_is_reported(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "history" / "replica-0009-1.jsonl").mkdir()
    refused = aiperf("report", copy)
    assert (refused.returncode, "replica-0009-1.jsonl" in refused.stderr) == (3, True)
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_shows_the_result_at_a_glance(run: Path, size: tuple[int, int], dark: bool) -> None:
    with open_page(run / "report" / "report.html", size, dark) as browser:
        assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
        for place in ("status", "reasons", "time"):
            box = browser.find_element("id", place).rect
            assert box["y"] >= 0 and box["y"] + box["height"] <= size[1], f"{place} is seen without scrolling"
            assert box["x"] >= 0 and box["x"] + box["width"] <= size[0]
        assert "score" in browser.find_element("class name", "card").text
        assert "dataset (digits)" in browser.find_element("id", "reasons").text
        assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0], "no sideways scrolling"
        assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
        assert browser.find_element("css selector", "#figure-phases svg").rect["height"] > 80
        contrast = browser.execute_script(CONTRAST)
        assert min(contrast.values()) >= 4.5, f"texts are readable: {contrast}"


def test_no_word_is_too_long_for_a_phone(tmp_path: Path) -> None:
    word = "W" * 90
    made = HandMadeRun(tmp_path / word, {"run.name": word}).at(0).release(100).at(1).start_trial(1)
    made.at(50).epoch(1, 1).lose(0, word).end(100)
    manifest = json.loads(made.paths.run.read_text())
    made.paths.run.write_text(json.dumps({**manifest, "git_revision": word}))
    with (made.paths.history / f"{made.primary.name}.jsonl").open("a") as file:
        file.write("damaged\n")
    assert aiperf("report", made.paths.root).returncode == 0
    page, ranking = made.paths.root / "report" / "report.html", tmp_path / "ranking.html"
    assert aiperf("rank", page.with_suffix(".json"), "--html", ranking).returncode == 0
    for file_shown, shown in ((page, 5), (ranking, 1)):
        assert file_shown.read_text().count(word) >= shown
        with open_page(file_shown, PHONE) as browser:
            width = browser.execute_script("return document.documentElement.scrollWidth")
        assert width == PHONE[0], f"{file_shown.name} scrolls sideways"


CONTRAST = """
const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => { v /= 255;
  return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const paper = light(getComputedStyle(document.body).backgroundColor);
const found = {};
for (const s of ['body', '.soft', '#status', 'td.passed', 'td.failed', 'figcaption', '#figure-phases text']) {
  const style = getComputedStyle(document.querySelector(s));
  const ink = light(s.includes('text') ? style.fill : style.color);
  found[s] = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}
return found;
"""
"""Contrast ratios of WCAG 2 between texts and the page."""
