"""Golden inputs from an earlier version: an old run reads and resumes, proposals are the same.

A change that is meant to change proposals computes the affected lists of `proposals.json` again:

    python -m tests.integration.runs.test_golden plans hpo_tpe
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from aiperf.config.settings import RunConfig
from aiperf.records.record import decode_record, encode_record
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Job
from referee.replay import ROUNDING
from replica.search.planner import Memory, Planner
from search_space.morphisms import morph_data
from tests.support.folders import GOLDEN
from tests.support.hand_made import aiperf
from tests.support.runs import report, unpacked

PROPOSALS: dict[str, list[dict[str, Any]]] = json.loads((GOLDEN / "proposals.json").read_text())
REPORT: dict[str, Any] = json.loads((GOLDEN / "run-0.1.0.report.json").read_text())


@pytest.fixture
def old_run(tmp_path: Path) -> RunPaths:
    return unpacked(tmp_path)


def test_an_old_run_has_the_same_report(old_run: RunPaths) -> None:
    assert aiperf("report", old_run.root, "--format", "json").returncode in (0, 1)
    found = report(old_run.root)
    for name, value in REPORT.items():
        if name not in ("trials", "score_ops", "regulated_score_ops"):
            assert found[name] == value, name
    assert (found["score_ops"], found["regulated_score_ops"]) == (None, None), "its primary was killed: it is invalid"
    assert found["timeline"][-1]["ops"] == REPORT["score_ops"]
    for trial, expected in zip(found["trials"], REPORT["trials"], strict=True):
        assert {name: trial[name] for name in expected} == expected


def test_an_old_run_verifies_and_resumes(old_run: RunPaths) -> None:
    assert aiperf("verify", old_run.root).returncode == 0
    manifest = json.loads(old_run.run.read_text())
    manifest["config"]["run"]["duration"] = 15.0
    old_run.run.write_text(json.dumps(manifest))
    done = aiperf("resume", old_run.root, "--new-clock")
    assert done.returncode == 0, done.stderr
    found = report(old_run.root)
    assert found["ended"] == "deadline"
    assert len(found["trials"]) > len(REPORT["trials"])
    assert aiperf("verify", old_run.root).returncode == 0


def test_records_are_written_as_before(old_run: RunPaths) -> None:
    lines = [line + b"\n" for file in old_run.history_files() for line in file.read_bytes().splitlines()]
    assert len({decode_record(line).body.type for line in lines}) >= 6
    assert [line for line in lines if encode_record(decode_record(line)) != line] == []


def choose(config: RunConfig, strategy: str, hpo: str) -> RunConfig:
    return config.model_copy(update={"search": config.search.model_copy(update={"strategy": strategy, "hpo": hpo})})


def planned(old_run: RunPaths, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases (strategy, tuner, replica and job) with what is planned for them."""
    shutil.rmtree(old_run.candidates)
    old_run.candidates.mkdir()
    config = read_manifest(old_run).config
    planners: dict[tuple[str, int], Planner] = {}
    found = []
    for case in cases:
        chosen = choose(config, case["strategy"], case["hpo"])
        replica = case["replica"]
        planner = planners.setdefault((case["strategy"], replica), Planner(replica, chosen, old_run, Memory()))
        plan = planner.plan(Job(**case["job"]))
        results = {
            "architecture": plan.proposal.architecture.hash,
            "parent": plan.proposal.parent,
            "morphs": [morph_data(morph) for morph in plan.proposal.morphs],
            "point": plan.hyperparameters,
        }
        found.append({**case, **results})
    return found


def searched(strategy: str) -> list[dict[str, Any]]:
    done = aiperf(
        "search", "--steps", 10, "--objective", "peak", "--strategy", strategy, "--seed", 3, "--format", "json"
    )
    return [{name: value for name, value in row.items() if name != "seconds"} for row in json.loads(done.stdout)]


def suggested(strategy: str) -> list[dict[str, Any]]:
    done = aiperf(
        "hpo", "--steps", 30, "--objective", "rastrigin", "--strategy", strategy, "--seed", 3, "--format", "json"
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def near(golden: dict[str, Any]) -> dict[str, Any]:
    """But for the last digits of numbers, which depend on the processor."""
    numbers = (dict, float)
    return {k: pytest.approx(v, rel=ROUNDING) if isinstance(v, numbers) else v for k, v in golden.items()}


@pytest.mark.parametrize("strategy", ["bayesian", "random"])
def test_plans_of_an_old_history_are_the_same(old_run: RunPaths, strategy: str) -> None:
    expected = [plan for plan in PROPOSALS["plans"] if plan["strategy"] == strategy]
    for plan, golden in zip(planned(old_run, expected), expected, strict=True):
        assert plan == {**near(golden), "job": golden["job"]}


@pytest.mark.parametrize("strategy", ["bayesian", "random"])
def test_the_search_proposes_the_same(strategy: str) -> None:
    assert searched(strategy) == [near(golden) for golden in PROPOSALS[f"search_{strategy}"]]


@pytest.mark.parametrize("strategy", ["tpe", "random"])
def test_the_tuner_suggests_the_same(strategy: str) -> None:
    assert suggested(strategy) == [near(golden) for golden in PROPOSALS[f"hpo_{strategy}"]]


def write_again(names: list[str]) -> None:
    """Compute the named lists of `proposals.json`; other lists stay as they are."""
    lists = dict(PROPOSALS)
    for name in names:
        kind, _, strategy = name.partition("_")
        if kind == "plans":
            with tempfile.TemporaryDirectory() as folder:
                lists[name] = planned(unpacked(Path(folder)), PROPOSALS[name])
        else:
            lists[name] = {"search": searched, "hpo": suggested}[kind](strategy)
    rows = {name: ",\n".join(map(json.dumps, items)) for name, items in lists.items()}
    text = ",\n".join(f"{json.dumps(name)}: [\n{lines}\n]" for name, lines in rows.items())
    (GOLDEN / "proposals.json").write_text(f"{{\n{text}\n}}\n")


if __name__ == "__main__":
    write_again(sys.argv[1:])
