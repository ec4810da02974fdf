"""Ranks: each run once, systems by their median run, shared if the intervals overlap."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.__main__ import main
from analysis.report.estimates import IntervalPart
from analysis.results.ranking import Row, rank
from analysis.results.source import RunResult, evidence_from, read_result
from analysis.verbs.ranking_page import ranking_page
from tests.support.hand_made import HandMadeRun


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    root = tmp_path_factory.mktemp("run")
    run = HandMadeRun(root).at(0).release(100).at(1).start_trial(1)
    return read_result(run.at(30).epoch(1, 1).end(100).paths.root)


def result(
    template: RunResult, name: str, score: float, half: float | None = 0.0, status: str = "official"
) -> RunResult:
    """A recomputed result with this score and half of its interval's width."""
    report = template.report
    assert report.statistics is not None
    low, high = (None, None) if half is None else (score - half, score + half)
    own = IntervalPart(value=score, low=low, high=high)
    return RunResult(
        Path(f"{name}-{score:g}"),
        report.model_copy(
            update={
                "name": name,
                "score_ops": score,
                "verdict": status,
                "accelerators": 1,
                "statistics": report.statistics.model_copy(update={"score_ops": own}),
            }
        ),
        recomputed=True,
        signer="lab",
    )


def test_overlapping_intervals_share_a_rank_with_the_first_of_it(template: RunResult) -> None:
    # 100 -+ 6 overlaps 95 -+ 6; 87 -+ 6 overlaps only the second: ranks are not chained.
    scores = {"c": 80.0, "b": 95.0, "a": 100.0, "d": 87.0}
    ranking = rank([result(template, name, score, 6) for name, score in scores.items()], "score")
    assert [(row.system, row.rank) for row in ranking.rows] == [("a", 1), ("b", 1), ("d", 3), ("c", 3)]
    assert (ranking.rows[0].interval_low, ranking.rows[0].interval_high) == (94, 106)


@pytest.mark.parametrize("wide", ["a", "b"])
def test_an_interval_as_wide_as_the_measure_does_not_share_a_rank(template: RunResult, wide: str) -> None:
    scores = {"a": 100.0, "b": 50.0}
    runs = [result(template, name, score, score if name == wide else 1) for name, score in scores.items()]
    assert [(row.system, row.rank) for row in rank(runs, "score").rows] == [("a", 1), ("b", 2)]


def test_a_damaged_copy_does_not_take_the_place_of_the_run(template: RunResult) -> None:
    good = replace(result(template, "good", 1), identity="t0")
    forged = replace(result(template, "forged", 2, status="invalid"), identity="t0")
    ranking = rank([forged, good], "score")
    assert [(row.system, row.rank) for row in ranking.rows] == [("good", 1)]
    assert ranking.same == ((str(forged.origin), str(good.origin)),)


def test_without_an_interval_only_equal_results_share_a_rank(template: RunResult) -> None:
    ranking = rank([result(template, name, score, None) for name, score in (("a", 9), ("b", 9), ("c", 8))], "score")
    assert [row.rank for row in ranking.rows] == [1, 1, 3]


def test_failures_of_trials_and_replicas_are_a_column_of_the_ranking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = HandMadeRun(tmp_path / "a").at(0).release(100, 2).at(1).start_trial(1).at(5).fail_trial(1)
    run.at(6).start_trial(2, replica=1).at(9).lose(1).at(10).start_trial(3).at(30).epoch(3, 1).end(100)
    (row,) = rank([read_result(run.paths.root)], "score").rows
    assert (row.failures, row.replicas_lost, row.trials) == (2, 1, 3), "a replica and its trial are one"
    monkeypatch.setattr("aiperf.cli.console.WIDTH", 80)
    assert main(["rank", str(run.paths.root), "--html", str(tmp_path / "page.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    heading = next(line for line in lines if "failures" in line)
    (cells,) = [line for line in lines if " GOPS " in line]
    assert len(heading) <= 80
    assert cells[: heading.index("failures") + len("failures")].split()[-1] == "2"
    cell = re.search(r'<td class="n" data-h="failures">(.*?)</td>', (tmp_path / "page.html").read_text())
    assert cell is not None
    assert re.sub("<.*?>", " ", cell[1]).split() == ["2", "in", "3", "trials,", "1", "replica", "lost"]


def test_a_report_of_an_earlier_version_does_not_say_how_many_failed(template: RunResult) -> None:
    one = result(template, "a", 1.0)
    earlier = replace(one, report=one.report.model_copy(update={"counts": None}))
    (row,) = rank([earlier], "score").rows
    assert (row.failures, row.replicas_lost, row.trials) == (None, None, None)
    assert '<td class="n" data-h="failures">-</td>' in ranking_page(rank([earlier], "score"))


def test_runs_of_one_system_take_the_median(template: RunResult) -> None:
    runs = [result(template, "a", score) for score in (30.0, 10.0, 20.0, 40.0)]
    row, other = rank([*runs, result(template, "b", 15.0)], "score").rows
    assert (row.system, row.score_ops, row.runs, row.rank) == ("a", 20.0, 4, 1), "the lower of the two in the middle"
    assert row.others == "a-10, a-30, a-40"
    assert (other.system, other.runs, other.rank) == ("b", 1, 2)


def test_a_run_with_the_default_name_has_that_of_its_machine(template: RunResult) -> None:
    def named(*hosts: str, **facts: object) -> Row:
        system = {str(place): {"host": host, **facts} for place, host in enumerate(hosts)}
        one = result(template, "aiperf", 1.0)
        own = replace(one, origin=Path("runs/first"), report=one.report.model_copy(update={"system": system}))
        return rank([own], "score").rows[0]

    machines = ((), ("n1",), ("gpu01", "gpu02"), ("n1.a.org", "n2.a.org"), ("a", "b"))
    assert [named(*hosts).system for hosts in machines] == [
        "first",
        "n1",
        "gpu*",
        "n*.a.org",
        "a and 1 more",
    ]
    row = named("n1", "n2", "n2", cpu_model="CPU 9", accelerators=8, accelerator="GPU 7")
    assert (row.name, row.run, row.nodes, row.processor, row.accelerator) == ("aiperf", "first", 2, "CPU 9", "GPU 7")
    assert row.started == template.report.started
    assert named("n1", cpu_count=-1).system == "first", "an impossible machine of a foreign report is unknown"


def test_runs_with_the_default_name_on_two_machines_are_two_systems(template: RunResult) -> None:
    runs = []
    for host in ("north", "south"):
        one = result(template, "aiperf", 1.0)
        runs.append(replace(one, report=one.report.model_copy(update={"system": {"0": {"host": host}}})))
    assert [row.system for row in rank(runs, "score").rows] == ["north", "south"]


def test_runs_of_two_signers_are_two_systems(template: RunResult) -> None:
    runs = [replace(result(template, "a", score), signer=signer) for score, signer in ((9.0, "ada"), (1.0, "eve"))]
    assert [(row.score_ops, row.runs) for row in rank(runs, "score").rows] == [(9.0, 1), (1.0, 1)]


def spent(template: RunResult, name: str, per_joule: float | None, basis: str = "sensors of accelerators") -> RunResult:
    one = result(template, name, 1.0, 0.5)
    energy = one.report.energy.model_copy(update={"operations_per_joule": per_joule, "basis": basis})
    return replace(one, report=one.report.model_copy(update={"energy": energy}))


def test_a_ranking_by_energy_leaves_unmeasured_systems_without_a_rank(template: RunResult) -> None:
    runs = [spent(template, "unknown", None, ""), spent(template, "low", 2e9), spent(template, "high", 3e9)]
    ranking = rank([*runs, spent(template, "a part of its nodes", 9e9, "")], "energy")
    assert [(row.system, row.rank) for row in ranking.rows] == [
        ("high", 1),
        ("low", 2),
        ("a part of its nodes", None),
        ("unknown", None),
    ]
    assert {(row.interval_low, row.interval_high) for row in ranking.rows} == {(None, None)}


def test_energies_of_different_scope_or_level_have_ranks_of_their_own(template: RunResult) -> None:
    level_2, level_3 = "meters, Level 2: nodes, network", "meters, Level 3: nodes, network"
    below, sensors = "meters, below Level 1: nodes", "sensors of accelerators"
    of_basis = {"a": sensors, "b": level_2, "c": level_3, "d": level_2, "e": below, "f": sensors}
    runs = [spent(template, name, 1e9 * number, basis) for number, (name, basis) in enumerate(of_basis.items(), 1)]
    ranking = rank(runs, "energy")
    assert [(row.system, row.rank, row.energy_basis) for row in ranking.rows] == [
        ("c", 1, level_3),
        ("d", 1, level_2),
        ("b", 2, level_2),
        ("e", 1, below),
        ("f", 1, sensors),
        ("a", 2, sensors),
    ]
    page = ranking_page(ranking)
    tables = re.split(r'<p class="soft basis">Energy: ', page)[1:]
    assert [text.partition(".")[0] for text in tables] == [level_3, level_2, below, sensors]
    assert page.count('id="official"') == 1
    assert [row.rank for row in rank(runs, "score").rows] == [1] * 6, "other measures know no basis"


def test_another_configuration_is_another_system(template: RunResult) -> None:
    one = result(template, "a", 1.0)
    configuration = {**one.report.configuration, "search": {"strategy": "random"}}
    other = RunResult(Path("x"), one.report.model_copy(update={"configuration": configuration}), recomputed=True)
    assert [row.runs for row in rank([one, other], "score").rows] == [1, 1]


def test_invalid_and_unverified_results_have_no_rank(template: RunResult) -> None:
    claimed = RunResult(Path("report.json"), result(template, "claimed", 1e30).report, recomputed=False)
    broken = RunResult(Path("y"), result(template, "broken", 9e18, status="invalid").report, recomputed=False)
    ranking = rank(
        [claimed, broken, result(template, "bad", 5, status="invalid"), result(template, "good", 1)], "score"
    )
    assert [(row.system, row.status, row.rank) for row in ranking.rows] == [
        ("good", "official", 1),
        ("bad", "invalid", None),
        ("claimed", "unverified", None),
        ("broken", "unverified", None),
    ]
    assert [row.score_ops for row in ranking.rows] == [1, None, 1e30, None]


def test_results_that_nobody_known_has_signed_are_rows_of_their_own(template: RunResult) -> None:
    signed = [result(template, "a", score) for score in (30.0, 10.0)]
    foreign = replace(result(template, "a", 1.0), signer="other")
    unsigned = [replace(result(template, "a", score), signer=None) for score in (2.0, 3.0)]
    rows = rank([*signed, foreign, *unsigned], "score").rows
    assert [(row.score_ops, row.signer, row.runs) for row in rows] == [
        (10.0, "lab", 2),
        (3.0, None, 1),
        (2.0, None, 1),
        (1.0, "other", 1),
    ]


def with_steps(one: RunResult, *evidence: str, signer: str | None = None) -> RunResult:
    """A result whose epochs have these steps."""
    return replace(one, signer=signer, evidence=evidence_from(map(str.encode, evidence)), head=str(one.origin))


def test_results_that_share_steps_keep_their_rows_and_count_as_one(template: RunResult) -> None:
    made = {"a": 50.0, "faster": 100.0, "b": 40.0, "slower": 10.0, "c": 5.0}
    steps = {"b": "b", "c": "c"}
    ranking = rank([with_steps(result(template, n, s), steps.get(n, "a")) for n, s in made.items()], "score")
    assert [(row.system, row.rank, bool(row.contested)) for row in ranking.rows] == [
        ("faster", 1, True),
        ("a", 1, True),
        ("b", 2, False),
        ("slower", 2, True),
        ("c", 3, False),
    ]
    assert len(ranking.conflicts) == 3
    assert "a-50 and faster-100 are different results with the steps of 1 of 1 epochs" in ranking.conflicts[0]


def test_a_signature_decides_whose_steps_they_are(template: RunResult) -> None:
    own = with_steps(result(template, "a", 50.0), "1", signer="lab")
    again = with_steps(result(template, "a", 51.0), "1", signer="lab")
    copied = with_steps(result(template, "faster", 100.0), "1")
    ranking = rank([copied, own, again], "score")
    assert [(row.system, row.rank, row.status, row.reasons.split(", ")[-1]) for row in ranking.rows] == [
        ("a", 1, "official", "evidence"),
        ("faster", None, "unofficial", "copied"),
    ]


def test_one_release_in_two_results_is_a_conflict(template: RunResult) -> None:
    runs = [replace(result(template, n, s), identity="t0", signer=None, head=n) for n, s in (("a", 2.0), ("cut", 1.0))]
    ranking = rank(runs, "score")
    assert [(row.system, row.rank) for row in ranking.rows] == [("a", 1), ("cut", 1)]
    assert "their release" in ranking.conflicts[0]


@pytest.mark.parametrize(
    ("name", "found"),
    [("Fr\u043entier", "Cyrillic, Latin"), ("Frontier\u200b", "U+200B"), ("富岳 Fugaku", ""), ("Größe 1", "")],
)
def test_names_that_can_be_taken_for_others_are_named(template: RunResult, name: str, found: str) -> None:
    conflicts = rank([result(template, name, 1.0)], "score").conflicts
    assert [found in line for line in conflicts] == [True] * bool(found)


def test_a_run_and_its_copy_are_one_row(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(100).at(1).start_trial(1).at(30).epoch(1, 1).end(100)
    shutil.copytree(run.paths.root, tmp_path / "copy")
    manifest = json.loads((tmp_path / "copy" / "run.json").read_text())
    manifest["config"]["run"]["name"] = "another"
    (tmp_path / "copy" / "run.json").write_text(json.dumps(manifest))
    ranking = rank([read_result(tmp_path / "run"), read_result(tmp_path / "copy")], "score")
    assert [row.origin for row in ranking.rows] == [str(tmp_path / "run")]
    assert ranking.same == ((str(tmp_path / "copy"), str(tmp_path / "run")),)
    assert ranking.repeated == (f"{tmp_path / 'copy'} is the same run as {tmp_path / 'run'}.",)
    twice = rank([read_result(tmp_path / "run")] * 3, "score")
    assert twice.repeated == (), "a path that is given twice is no copy"


def test_a_system_without_the_measure_has_no_rank(template: RunResult) -> None:
    results = [result(template, name, ops, None) for name, ops in (("a", 50.0), ("b", 5.0))]
    without = [replace(each, report=each.report.model_copy(update={"accelerators": 0})) for each in results]
    assert [row.rank for row in rank(without, "accelerator").rows] == [None, None]
