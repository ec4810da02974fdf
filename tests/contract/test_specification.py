"""Rules, specification and conformance kit are one; the kit's runner finds what is done wrong."""

import ast
import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Callable
from math import log10
from pathlib import Path
from typing import Any, get_args

import pytest

from aiperf.records import bodies
from aiperf.records.ledger import Ledger
from aiperf.rules import official_run, prediction, rounds, science
from analysis.reading import work
from analysis.reading.run_data import RunData, read_run
from analysis.reading.work import on_one_clock
from conformance import reference, run
from tests.support import by_specification
from tests.support.folders import DOCS, ROOT

TEXT = (DOCS / "specification.md").read_text(encoding="utf-8")
Answer = dict[str, Any]


def rows(heading: str) -> list[list[str]]:
    """The cells of each row of the first table behind a heading."""
    lines = TEXT[TEXT.index(heading) :].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


# The text.


@pytest.mark.parametrize(("heading", "rules"), [("## 8. Rules", official_run.RULES), ("## Annex", science.RULES)])
def test_the_rules_of_the_specification_are_those_of_the_program(heading: str, rules: tuple[Any, ...]) -> None:
    found = rows(heading)
    assert [row[:3] for row in found] == [[rule.name, rule.required, rule.group] for rule in rules]
    assert [row[0] for row in found if not row[3]] == [], "each has a source"


def test_the_records_of_the_specification_are_those_of_the_program() -> None:
    kinds = {str(kind.__struct_config__.tag): kind for kind in get_args(bodies.AnyBody)}
    for name, _, fields in rows("3. Records that decide the score"):
        named = set(re.findall(r"`(\w+)`", fields)) - {"completed", "early_stop", "stopped"}
        assert named <= set(kinds[name.strip("`")].__struct_fields__), name


def test_the_numbers_of_the_specification_are_those_of_the_program() -> None:
    assert f"{official_run.RESNET50_OPERATIONS:,}" in TEXT
    assert {float(number) for number in re.findall(r"`predicted`, within (1e-\d+)", TEXT)} == {run_tolerance()}
    assert f"plus {rounds.LEAST_IMPROVEMENT:g}" in TEXT
    assert f"epoch {prediction.PREDICTED_EPOCH:g} E" in TEXT
    assert f"rule set `{official_run.RULES_VERSION}`" in TEXT and f"Annex: `{science.SCIENCE_RULES_VERSION}`" in TEXT


def run_tolerance() -> float:
    return next(float(case["tolerance"]) for case in CASES if case["request"]["task"] == "predict")


def test_the_specification_has_at_most_twelve_pages() -> None:
    """Of 55 lines with 100 characters; a line of a table takes as many as its text."""
    assert sum(max(1, -(-len(line) // 100)) for line in TEXT.splitlines()) <= 12 * 55


# The kit.

CASES: list[dict[str, Any]] = json.loads((run.KIT / "cases.json").read_text())


def test_the_kit_asks_for_every_task_of_the_specification_and_uses_every_layer() -> None:
    tasks = {row[0].strip("`") for row in rows("## 11. Conformance")}
    assert tasks == set(reference.TASKS) == {case["request"]["task"] for case in CASES}
    files = {case["request"]["network"] for case in CASES if "network" in case["request"]}
    used = {node["kind"] for file in files for node in json.loads((run.KIT / file).read_text())["nodes"]}
    assert set(re.findall(r"`(\w+)`", " ".join(row[0] for row in rows("## 5. Counting")))) - used == {"dropout"}
    names = [case["name"] for case in CASES]
    assert len(names) == len(set(names))


def test_this_project_conforms() -> None:
    command = [sys.executable, "conformance/run.py", sys.executable, "-m", "conformance.reference"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"0 of {len(CASES)} cases failed (scoring and search)"


@pytest.mark.parametrize(
    "program", ["", "print('hello')", "input(); print('{}', flush=True); input()", "raise SystemExit(3)"]
)
def test_a_command_that_does_not_answer_fails(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "cases", lambda kit, folder: [(case, case["request"]) for case in CASES[:3]])
    assert run.main([sys.executable, "-c", program]) == 1


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run, "cases", lambda kit, folder: [(CASES[0], CASES[0]["request"])])
    monkeypatch.setattr(run, "TIMEOUT_S", 0.2)
    assert run.main([sys.executable, "-c", "import time; time.sleep(3600)"]) == 1
    assert "no answer" in capsys.readouterr().out


def test_the_runner_needs_nothing_of_this_project() -> None:
    for module in (run, by_specification):
        assert module.__file__ is not None
        nodes = list(ast.walk(ast.parse(Path(module.__file__).read_text())))
        named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        named |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        assert {name.partition(".")[0] for name in named} <= sys.stdlib_module_names


# Errors that are planted, and found.


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], dict[str, Any], Answer]]:
    """Each case with its request and the right answer."""
    folder = tmp_path_factory.mktemp("kit")
    found = [(case, request, reference.answer(request)) for case, request in run.cases(run.KIT, folder)]
    assert [case["name"] for case, _, answer in found if run.differences(case, answer)] == []
    return found


def rewritten(**changes: Callable[[Answer], Any]) -> Callable[[Answer], Answer]:
    """Answers that have these keys with other values, computed from the right answer."""
    return lambda answer: {key: changes[key](answer) if key in changes else value for key, value in answer.items()}


WRONG_ANSWERS: dict[str, tuple[str, Callable[[Answer], Answer]]] = {
    "a multiply-accumulate is one operation": ("count", rewritten(forward=lambda a: a["forward"] // 2)),
    "the update is left out": ("count", rewritten(backward=lambda a: 2 * a["forward"])),
    "a layer without a rule counts zero": ("count", lambda a: {"forward": 0, "backward": 0, **a, "refused": False}),
    "a warm-up of two rounds": ("schedule", lambda a: {**a, "predicts": a["epochs"] in (15, 30)}),
    "the clock stops at the last epoch": ("check", rewritten(score=lambda a: a["score"] and a["score"] * 377.5 / 360)),
    "the regulated score by log10": (
        "check",
        rewritten(regulated=lambda a: a["score"] and -log10(a["error"]) * a["score"]),
    ),
    "the last point of the timeline is missing": ("check", rewritten(timeline=lambda a: a["timeline"][:-1])),
    "every run is damaged": ("check", lambda a: {**a, "status": "FAILED", "score": None, "regulated": None}),
    "the rules of a simulated run are left out": ("check", rewritten(rules=lambda a: [])),
    "a search that proposes the first architecture": ("propose", lambda a: {**a, "parent": None, "morphs": []}),
}


@pytest.mark.parametrize("error", WRONG_ANSWERS)
def test_a_wrong_answer_is_found(error: str, asked: list[tuple[dict[str, Any], dict[str, Any], Answer]]) -> None:
    task, planted = WRONG_ANSWERS[error]
    found = [
        case["name"]
        for case, request, answer in asked
        if request["task"] == task and run.differences(case, planted(answer))
    ]
    assert found != []


def undamaged(kinds: tuple[str, ...]) -> Callable[[Any], RunData]:
    """Reading that finds no damages but those of some kinds."""

    def read(paths: Any) -> RunData:
        data = read_run(paths)
        return dataclasses.replace(data, damages=tuple(item for item in data.damages if item.kind in kinds))

    return read


def on_their_clocks(_: Ledger, entries: Any, parts: Any) -> Any:
    """The rows of trials with the offset of no clock subtracted."""
    return on_one_clock(Ledger(), entries, parts)


WRONG_PROGRAMS: dict[str, tuple[Any, str, Any, set[str]]] = {
    "a prediction without caution": (prediction, "CAUTION", 0.0, {"predict noisy"}),
    "a prediction for the last epoch": (prediction, "PREDICTED_EPOCH", 1.0, {"predict smooth", "predict late start"}),
    "one patience for all rounds": (rounds, "patience_of_round", lambda number: 6, {"round 9 of at most 60 epochs"}),
    "unfinished epochs of failed trials count": (
        Ledger,
        "work_died_ms",
        lambda ledger, trial: None,
        {"check simulated"},
    ),
    "clocks are not corrected": (work, "on_one_clock", on_their_clocks, {"check simulated"}),
    "no chain, no witness": (
        reference,
        "read_run",
        undamaged(()),
        {case["name"] for case in CASES if "changes" in case},
    ),
    "checksums alone": (
        reference,
        "read_run",
        undamaged(("record",)),
        {"check an epoch edited, with a checksum but without its chain", "check an epoch removed"},
    ),
}


@pytest.mark.parametrize("error", WRONG_PROGRAMS)
def test_an_error_in_the_program_is_found(
    error: str, asked: list[tuple[dict[str, Any], dict[str, Any], Answer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name, wrong, expected = WRONG_PROGRAMS[error]
    monkeypatch.setattr(where, name, wrong)
    found = {
        case["name"]
        for case, request, _ in asked
        if case["name"] in expected and run.differences(case, reference.answer(request))
    }
    assert found == expected


# By hand: from the text alone.


@pytest.mark.parametrize("case", [case for case in CASES if "forward" in case["expect"]], ids=lambda case: case["name"])
def test_the_operations_of_a_network_by_hand(case: dict[str, Any]) -> None:
    found = by_specification.count(run.KIT / case["request"]["network"])
    assert found == (case["expect"]["forward"], case["expect"]["backward"])


@pytest.mark.parametrize("name", ["check simulated", "check small"])
def test_the_score_of_a_run_by_hand(name: str) -> None:
    (case,) = [case for case in CASES if case["name"] == name]
    expected = [case["expect"][key] for key in ("operations", "error", "score", "regulated")]
    assert list(by_specification.score(run.KIT / case["request"]["run"])) == pytest.approx(expected, rel=1e-12)


def test_the_score_by_hand_takes_sixty_lines() -> None:
    assert by_specification.__file__ is not None
    lines = Path(by_specification.__file__).read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("def "))
    assert sum(bool(line.strip()) for line in lines[first:]) <= 66
