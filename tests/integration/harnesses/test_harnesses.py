"""AIPerf in other test harnesses: ReFrame runs the example; JUBE's is read as JUBE reads it."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from aiperf.__main__ import parser_of
from aiperf.screening.outcome import write_outcome
from tests.support.folders import ROOT
from tests.support.nodes.screened import screened

HARNESSES = ROOT / "examples" / "harnesses"
REFRAME = HARNESSES / "aiperf_reframe.py"
JUBE = yaml.safe_load((HARNESSES / "aiperf.jube.yaml").read_text())

OPTIONS = "--dataset digits --set training.trainer=simulated --duration 3s --no-page"

SCREENING = f"""#!{sys.executable}
import shutil, sys
assert sys.argv[1] == "screen", sys.argv
shutil.copytree("FOLDER", sys.argv[sys.argv.index("--output") + 1])
print(open("FOLDER/screen.json").read())
sys.exit(CODE)
"""
"""A stand-in for `aiperf screen`, which would measure this machine: a real outcome of others."""


def reframe(prefix: Path, test: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """Let ReFrame run a test of the example; its exit code, and the test in its report."""
    prefix.mkdir()
    given = [word for name, value in variables.items() for word in ("-S", f"{test}.{name}={value}")]
    report = prefix / "reframe.json"
    program = [str(Path(sys.executable).with_name("reframe")), "-c", str(REFRAME), "-n", test, "-r", *given]
    variables_of_reframe = {**os.environ, "HOME": str(prefix), "TMPDIR": str(prefix)}
    done = subprocess.run(
        [*program, "--prefix", str(prefix), "--report-file", str(report), "--dont-restage", "--keep-stage-files"],
        cwd=prefix,
        capture_output=True,
        text=True,
        check=False,
        env=variables_of_reframe,
    )
    assert report.exists(), done.stdout + done.stderr
    (run,) = json.loads(report.read_text())["runs"]
    (case,) = run["testcases"]
    return done.returncode, case


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("limits") / "limits.toml"
    file.write_text("[at_least]\nscore_ops = 1.0\n")
    return file


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory, limits: Path) -> tuple[int, dict[str, Any]]:
    """A run by ReFrame that reaches its limits."""
    return reframe(tmp_path_factory.mktemp("reframe") / "a", "AiperfRun", options=OPTIONS, baseline=str(limits))


def test_reframe_runs_checks_and_accepts_and_keeps_the_score(accepted: tuple[int, dict[str, Any]]) -> None:
    code, case = accepted
    assert (code, case["result"]) == (0, "pass"), case
    found = json.loads((Path(case["stagedir"]) / "report.json").read_text())
    values = {key.rpartition(":")[2]: value[0] for key, value in case["perfvalues"].items()}
    assert values == {"score": found["score_ops"], "regulated_score": found["regulated_score_ops"]}


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"baseline": "LIMITS"}, "not accepted: score_ops"),
        ({"official": "true"}, "the run is simulated"),
        ({"options": "--replicas none"}, "aiperf run ended with 2"),
    ],
    ids=["a limit is missed", "a rule is missed", "wrong usage"],
)
def test_reframe_fails_with_the_reason(
    variables: dict[str, str], says: str, tmp_path: Path, accepted: tuple[int, dict[str, Any]]
) -> None:
    """The run is that of the test above: only what is asked of it differs."""
    limits, stand_in = tmp_path / "limits.toml", tmp_path / "aiperf"
    limits.write_text("[at_least]\nscore_ops = 1e30\n")
    stage = shlex.quote(accepted[1]["stagedir"])
    stand_in.write_text(
        f'#!/bin/sh\nif [ "$1" = run ]; then case "$*" in *none*) exit 2;; esac; cp -r {stage}/run run; '
        f'cat {stage}/report.json; else exec {shlex.quote(sys.executable)} -m aiperf "$@"; fi\n'
    )
    stand_in.chmod(0o755)
    given = {name: value.replace("LIMITS", str(limits)) for name, value in variables.items()}
    code, case = reframe(tmp_path / "r", "AiperfRun", aiperf=str(stand_in), **given)
    assert (code, case["result"]) == (1, "fail"), case
    assert says in case["fail_reason"]


@pytest.mark.parametrize("slow", [True, False], ids=["a slow device", "an even cluster"])
def test_reframe_names_the_bad_nodes_of_a_screening(tmp_path: Path, slow: bool) -> None:
    outcome = screened(tmp_path / "scratch", 4, {1: {("gpu5", "triad"): 0.5}} if slow else {})
    folder, stand_in = tmp_path / "outcome", tmp_path / "aiperf"
    folder.mkdir()
    (folder / "screen.json").write_text(write_outcome(outcome))
    stand_in.write_text(SCREENING.replace("FOLDER", str(folder)).replace("CODE", "4" if slow else "0"))
    stand_in.chmod(0o755)
    code, case = reframe(tmp_path / "r", "AiperfScreen", aiperf=str(stand_in))
    assert (code, case["result"]) == ((1, "fail") if slow else (0, "pass")), case
    if slow:
        assert "bad nodes: n001 gpu5: triad below its equals" in case["fail_reason"]
    else:
        names = {key.rpartition(":")[2] for key in case["perfvalues"]}
        assert names == {"matmul_32", "matmul_16", "triad", "conv_forward"}


# JUBE.


PARAMETERS = {each["name"]: each["_"] for each in JUBE["parameterset"]["parameter"]}


def commands() -> list[str]:
    """The lines of all steps, with the parameters in their places."""
    lines = [line for step in JUBE["step"] for line in step["do"]]
    for name, value in PARAMETERS.items():
        lines = [re.sub(rf"\${name}\b", str(value), line) for line in lines]
    return [line.replace("$$", "$") for line in lines]


def test_the_commands_of_jube_are_understood() -> None:
    found = [
        words for line in commands() for words in re.findall(r"aiperf ((?:screen|run|check|accept)\b[^>|;]*)", line)
    ]
    assert [words.split()[0] for words in found] == ["screen", "run", "check", "accept"]
    for words in found:
        verb, *rest = shlex.split(words)
        assert parser_of(verb).parse_args(rest)
    assert subprocess.run(["bash", "-n", "-c", "\n".join(commands())], check=False).returncode == 0


JUBE_PATTERNS = {
    "$jube_pat_int": r"([+-]?\d+)",
    "$jube_pat_fp": r"([+-]?(?:\d*\.?\d+(?:[eE][-+]?\d+)?|\d+\.))",
    "$jube_pat_nwrd": r"(?:\S+)",
}
"""The patterns that JUBE 2.7.1 offers (jube/pattern.py)."""


def test_the_patterns_of_jube_find_the_values_of_the_documents(accepted: tuple[int, dict[str, Any]]) -> None:
    stage = Path(accepted[1]["stagedir"])
    files = {"of_run": stage / "report.json", "of_acceptance": stage / "accept.json"}
    report = json.loads(files["of_run"].read_text())
    found = {}
    for patterns in JUBE["patternset"]:
        text = files[patterns["name"]].read_text() if patterns["name"] in files else "bad_nodes: 2\n"
        for each in patterns["pattern"]:
            pattern = each["_"]
            for name, own in JUBE_PATTERNS.items():
                pattern = pattern.replace(name, own)
            match = re.search(pattern, text)
            assert match is not None, each
            found[each["name"]] = match[1]
    assert float(found["score"]) == report["score_ops"]
    assert float(found["regulated"]) == report["regulated_score_ops"]
    assert float(found["error"]) == report["error"]
    assert (found["status"], found["accepted"], found["bad_nodes"]) == (report["status"], "true", "2")
    assert {*JUBE["result"]["table"]["column"]} == {*found, "replicas"}
