"""AIPerf in other test harnesses: ReFrame runs its example, JUBE's steps are run one by one."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from aiperf.__main__ import parser_of
from aiperf.screening.outcome import FILE, NAMES, write_outcome
from tests.support.folders import ROOT
from tests.support.nodes.screened import screened

HARNESSES = ROOT / "examples" / "harnesses"
REFRAME = HARNESSES / "aiperf_reframe.py"
JUBE = yaml.safe_load((HARNESSES / "aiperf.jube.yaml").read_text())

OPTIONS = "--dataset digits --set training.trainer=simulated --set search.strategy=random --duration 10s --no-page"

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


PARAMETERS = {each["name"]: str(each["_"]) for each in JUBE["parameterset"]["parameter"]}

JUBE_PATTERNS = {
    "$jube_pat_int": r"([+-]?\d+)",
    "$jube_pat_fp": r"([+-]?(?:\d*\.?\d+(?:[eE][-+]?\d+)?|\d+\.))",
    "$jube_pat_nwrd": r"(?:\S+)",
}
"""The patterns that JUBE 2.7.1 offers (jube/pattern.py)."""


def lines_of(step: dict[str, Any], parameters: dict[str, str]) -> list[str]:
    """The lines of a step, with the parameters in their places."""

    def value_of(name: re.Match[str]) -> str:
        return parameters.get(name[1], name[0])

    lines = [re.sub(r"\$(\w+)", value_of, line) for line in step["do"]]
    return [line.replace("$$", "$") for line in lines]


def run_steps(folder: Path, **given: str) -> str | None:
    """Run the steps in folders of their own, which see that of the step before, as in JUBE.

    JUBE is not installed from a package index. Gives the step that failed, at which JUBE stops.
    """
    parameters = {**PARAMETERS, **given}
    for step in JUBE["step"]:
        own = folder / step["name"]
        own.mkdir(parents=True)
        if "depend" in step:
            (own / step["depend"]).symlink_to(folder / step["depend"])
        if JUBE["fileset"]["name"] in step["use"]:
            shutil.copy(JUBE["fileset"]["copy"]["_"].replace("$baseline", parameters["baseline"]), own)
        for line in lines_of(step, parameters):
            if subprocess.run(["/bin/sh", "-c", line], cwd=own, check=False).returncode:
                return str(step["name"])
    return None


def results(folder: Path) -> dict[str, str]:
    """The values that JUBE's analyser finds in the files of the steps."""
    patterns = {each["name"]: each["pattern"] for each in JUBE["patternset"]}
    found = {}
    for analysed in JUBE["analyser"]["analyse"]:
        text = (folder / analysed["step"] / analysed["file"]["_"]).read_text()
        for each in patterns[analysed["file"]["use"]]:
            pattern = each["_"]
            for name, own in JUBE_PATTERNS.items():
                pattern = pattern.replace(name, own)
            match = re.search(pattern, text)
            assert match is not None, each
            found[each["name"]] = match[1]
    return found


@pytest.fixture
def screens(tmp_path: Path) -> str:
    """A command that screens four nodes, one of them with a slow device, and else is AIPerf."""
    outcome = screened(tmp_path / "scratch", 4, {1: {("gpu5", "triad"): 0.5}})
    folder = tmp_path / "outcome"
    folder.mkdir()
    (folder / FILE).write_text(write_outcome(outcome))
    (folder / NAMES).write_text("".join(f"{host}\n" for host in outcome.hosts))
    stand_in, screen = tmp_path / "aiperf", tmp_path / "screen"
    screen.write_text(SCREENING.replace("FOLDER", str(folder)).replace("CODE", "4"))
    screen.chmod(0o755)
    python = shlex.quote(sys.executable)
    stand_in.write_text(f'#!/bin/sh\n[ "$1" != screen ] || exec {screen} "$@"\nexec {python} -m aiperf "$@"\n')
    stand_in.chmod(0o755)
    return str(stand_in)


def test_the_verbs_of_jube_are_understood() -> None:
    lines = [line for step in JUBE["step"] for line in lines_of(step, PARAMETERS)]
    found = [words for line in lines for words in re.findall(r"aiperf ((?:screen|run|check|accept)\b[^>|;]*)", line)]
    assert [words.split()[0] for words in found] == ["screen", "run", "check", "accept"]
    for words in found:
        verb, *rest = shlex.split(words)
        assert parser_of(verb).parse_args(rest)


@pytest.mark.parametrize(("least", "accepted"), [("1.0", "true"), ("1e30", "false")], ids=["reached", "missed"])
def test_the_steps_of_jube_screen_run_check_and_accept(least: str, accepted: str, tmp_path: Path, screens: str) -> None:
    """A bad node and a missed limit are results, at which JUBE goes on."""
    limits = tmp_path / "limits.toml"
    limits.write_text(f"[at_least]\nscore_ops = {least}\n")
    assert run_steps(tmp_path / "jube", aiperf=screens, options=OPTIONS, baseline=str(limits)) is None
    report = json.loads((tmp_path / "jube" / "run" / "report.json").read_text())
    found = results(tmp_path / "jube")
    assert float(found["score"]) == report["score_ops"]
    assert float(found["regulated"]) == report["regulated_score_ops"]
    assert float(found["error"]) == report["error"]
    assert (found["status"], found["accepted"], found["bad_nodes"]) == (report["status"], accepted, "1")
    assert {*JUBE["result"]["table"]["column"]} == {*found, "replicas"}


def test_jube_stops_at_a_run_that_fails(tmp_path: Path, screens: str) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text("[at_least]\nscore_ops = 1.0\n")
    assert run_steps(tmp_path / "jube", aiperf=screens, options="--dataset none", baseline=str(limits)) == "run"
