"""The command line: help without TensorFlow, and one clear message for every mistake."""

import argparse
import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aiperf.__main__ import parser_of
from aiperf.cli.command import Command
from aiperf.cli.verbs import FOLLOW_UPS, VERBS
from aiperf.registry import Registry
from tests.support.hand_made import SIMULATED, HandMadeRun, aiperf, aiperf_here


def test_help_imports_no_tensorflow_nor_any_other_large_library() -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "aiperf", "--help"], capture_output=True, text=True, check=True
    )
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert not imported & {"tensorflow", "keras", "numpy", "pydantic", "rich"}
    assert all(verb in result.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    result = aiperf_here(verb, "--help")
    assert result.returncode == 0
    assert f"example:\n  aiperf {verb} " in result.stdout


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of a verb's actions, such as that of `aiperf nodes list`, and of their kinds."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                yield from (own, *getattr(own, "kinds", {}).values())


@pytest.mark.parametrize("verb", ["config", "dataset", "list", "nodes", "slurm", "store"])
def test_every_action_has_a_description_an_example_that_parses_and_debug(verb: str) -> None:
    parser = parser_of(verb)
    found = [*actions_of(parser)]
    assert len(found) >= 1
    for own in found:
        assert own.description, own.prog
        example = (own.epilog or "").splitlines()[-1].strip()
        assert example.startswith(own.prog + " "), own.prog
        words = shlex.split(re.split(r" (?:>|&&) ", example)[0])[2:]
        assert not parser.parse_args(words).debug
        assert parser.parse_args([*words, "--debug"]).debug
        assert parser.parse_args(["--debug", *words]).debug, "the action does not undo it"


def test_no_other_verb_has_actions() -> None:
    assert {verb for verb in VERBS if [*actions_of(parser_of(verb))]} == {
        "config",
        "dataset",
        "list",
        "nodes",
        "slurm",
        "store",
    }


def test_no_verb_an_unknown_verb_and_the_version() -> None:
    assert aiperf_here().returncode == 2
    unknown = aiperf_here("rnu")
    assert unknown.returncode == 2
    assert unknown.stderr == "aiperf: unknown verb 'rnu'; did you mean 'run'? 'aiperf --help' lists all verbs\n"
    assert aiperf_here("--version").stdout.startswith("aiperf ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replicas", "0"], "run.replicas: found 0; allowed is a whole number from 1 to 100000"),
        (["--replicas", "-3"], "run.replicas: found -3; allowed is a whole number"),
        (["--replicas", "two"], "run.replicas: found 'two'; allowed is a whole number from 1"),
        (["--duration", "soon"], "run.duration: 'soon' is not a duration; use 90s, 5m, 1h30m or 12h\n"),
        (["--dataset", "cifar"], "unknown data set 'cifar'; known: digits, imagenet"),
        (["--dataset", "images"], "data set 'images' needs the directory of its files"),
        (["--set", "training.batchsize=3"], "training.batchsize: unknown key (did you mean batch_size?); valid here:"),
        (["--set", "nonsense"], "overrides are written section.key=value"),
        (["--preset", "fast"], "unknown preset 'fast'; known: official, quick"),
        (["missing.toml"], "missing.toml: cannot be read"),
        (["--launcher", "ssh"], "ssh.hosts is empty, and this is not inside an allocation"),
        (["--unknown"], "unrecognized arguments: --unknown"),
        (["--replcias=3"], "unrecognized arguments: --replcias=3; did you mean --replicas?"),
    ],
)
def test_wrong_usage_gives_one_message_and_starts_nothing(tmp_path: Path, arguments: list[str], message: str) -> None:
    output = tmp_path / "run"
    result = aiperf_here("run", *SIMULATED, *arguments, "--output", output)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not output.exists()


def test_several_wrong_values_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[run]\nreplicas = 0\nduration = "x"\n[training]\nmomentum = 2\n[oops]\n')
    result = aiperf_here("run", file, "--output", tmp_path / "run")
    assert result.returncode == 2
    assert "4 problem(s)" in result.stderr
    assert all(key in result.stderr for key in ("run.replicas", "run.duration", "training.momentum", "oops"))


def test_options_that_cannot_be_read_do_not_hide_wrong_values(tmp_path: Path) -> None:
    result = aiperf_here(
        "run",
        "--set",
        "training.batchsize=3",
        "--set",
        "run.duration=5x",
        "--set",
        "replicas=1",
        "--preset",
        "quik",
        "--config",
        tmp_path / "no.toml",
        "--output",
        tmp_path / "run",
    )
    assert result.returncode == 2
    for text in (
        "5 problem(s)",
        "training.batchsize: unknown key (did you mean batch_size?)",
        "run.duration: '5x' is not a duration",
        "'replicas=1': overrides are written section.key=value, such as run.replicas=1",
        "unknown preset 'quik'; did you mean quick?",
        "no.toml: cannot be read",
    ):
        assert text in result.stderr


def test_an_output_directory_with_another_run_is_left_alone(tmp_path: Path) -> None:
    output = tmp_path / "run"
    output.mkdir()
    (output / "run.json").write_text("precious")
    result = aiperf_here("run", *SIMULATED, "--output", output)
    assert (result.returncode, "holds another run" in result.stderr) == (2, True)
    assert f"aiperf resume {output}" in result.stderr
    assert [path.name for path in output.iterdir()] == ["run.json"]
    assert (output / "run.json").read_text() == "precious"


def test_a_place_that_cannot_be_written_is_an_environment_error() -> None:
    result = aiperf("run", *SIMULATED, "--output", "/proc/aiperf-run")
    assert result.returncode == 3
    assert "/proc" in result.stderr
    assert "Traceback" not in result.stderr


def test_too_little_disk_space_is_an_environment_error(tmp_path: Path) -> None:
    result = aiperf("run", *SIMULATED, "--set", "run.min_free_disk_gib=1e9", "--output", tmp_path / "run")
    assert (result.returncode, "too little disk space" in result.stderr) == (3, True)
    assert not (tmp_path / "run").exists()


def test_without_tensorflow_the_run_says_how_to_get_it(tmp_path: Path) -> None:
    hide = tmp_path / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *more: None if name == 'tensorflow' else find(name, *more)\n"
    )
    result = aiperf("run", "--dataset", "digits", "--output", tmp_path / "run", environment={"PYTHONPATH": str(hide)})
    assert result.returncode == 3
    assert "TensorFlow is not installed" in result.stderr
    assert "pip install '.[tensorflow]'" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["report", "status"])
def test_a_path_that_is_not_a_run_directory_is_refused(verb: str, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        result = aiperf_here(verb, path)
        assert (result.returncode, str(path) in result.stderr) == (2, True)
        assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    assert "Traceback" in aiperf("report", tmp_path, "--debug").stderr


def one_run(folder: Path) -> Path:
    run = HandMadeRun(folder / "run", {"training.trainer": "simulated"}).at(0).release(100)
    return run.at(1).start_trial(1).at(60).epoch(1, 1).end(100).paths.root


def interrupted_run(folder: Path) -> Path:
    run = HandMadeRun(folder / "run", {"training.trainer": "simulated", "run.duration": "3s"}).at(0).release(100)
    return run.at(1).start_trial(1).paths.root


JSON: dict[str, Callable[[Path], list[object]]] = {
    "run": lambda folder: [*SIMULATED, "--duration", "3s", "--output", folder / "run"],
    "resume": lambda folder: [interrupted_run(folder), "--new-clock"],
    "report": lambda folder: [one_run(folder)],
    "status": lambda folder: [one_run(folder)],
    "check": lambda folder: [one_run(folder)],
    "verify": lambda folder: [one_run(folder)],
    "export": lambda folder: [one_run(folder)],
    "rank": lambda folder: [one_run(folder)],
    "trend": lambda folder: [one_run(folder)],
    "store": lambda folder: ["add", one_run(folder), "--store", folder / "results.sqlite"],
    "compare": lambda folder: [one_run(folder), folder / "run"],
    "accept": lambda folder: [one_run(folder), "--baseline", folder / "run"],
    "scale": lambda folder: ["--from", one_run(folder)],
    "search": lambda folder: ["--steps", 2],
    "hpo": lambda folder: ["--steps", 3],
    "ops": lambda folder: ["--architecture", "resnet50"],
    "config": lambda folder: ["show"],
    "doctor": lambda folder: [*SIMULATED, "--output", folder / "run"],
}
ELSEWHERE = {
    "nodes": "test_ssh.py",
    "profile": "test_profile.py",
    "audit": "test_audit.py",
    "micro": "test_micro.py",
    "rehearse": "test_rehearsal.py",
    "predict": "test_rehearsal.py",
    "screen": "test_screen.py",
    "stop": "test_terminals.py",
}
"""Verbs that need an SSH server or take their time: their own tests parse their output."""


@pytest.mark.parametrize("verb", JSON)
def test_json_is_all_that_standard_output_has(verb: str, tmp_path: Path) -> None:
    done = aiperf(verb, *map(str, JSON[verb](tmp_path)), "--format", "json")
    assert json.loads(done.stdout), done.stderr
    assert ("\nAIPerf: score=" in f"\n{done.stderr}") == (verb in ("run", "resume", "report"))


CSV = {"rank": "rank,", "trend": "system,", "scale": "replicas,", "ops": "name,"}
"""The verbs that print CSV, and how its header begins."""


@pytest.mark.parametrize("verb", CSV)
def test_csv_is_all_that_standard_output_has_and_begins_with_a_header(verb: str, tmp_path: Path) -> None:
    done = aiperf(verb, *map(str, JSON[verb](tmp_path)), "--format", "csv")
    header, *rows = csv.reader(io.StringIO(done.stdout))
    assert done.stdout.startswith(CSV[verb]), done.stderr
    assert rows
    assert {len(row) for row in rows} == {len(header)}


@pytest.mark.parametrize(("form", "tested"), [("json", {*JSON, *ELSEWHERE}), ("csv", {*CSV, "micro"})])
def test_every_verb_with_a_format_is_tested(form: str, tested: set[str]) -> None:
    assert {verb for verb in VERBS if prints(verb, form)} == tested


def prints(verb: str, form: str) -> bool:
    """True if a verb or one of its actions takes --format `form`."""
    commands: Registry[Command] = Registry("verb", {verb: VERBS[verb][0]})
    parsers = [argparse.ArgumentParser()]
    commands.load(verb).configure(parsers[0])
    for parser in parsers:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers.extend(action.choices.values())
            elif "--format" in action.option_strings and form in (action.choices or ()):
                return True
    return False


@pytest.mark.parametrize("verb", FOLLOW_UPS)
def test_second_halves_of_verbs_are_not_in_the_help_but_have_one(verb: str) -> None:
    assert verb not in aiperf_here("--help").stdout
    assert aiperf_here(verb, "--help").returncode == 0


@pytest.mark.parametrize("verb", ["report", "status", "check"])
def test_without_a_run_the_newest_below_runs_is_taken(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no run below runs/" in aiperf_here(verb).stderr
    for age, name in enumerate(["newest", "older"]):
        run = HandMadeRun(tmp_path / "runs" / name).at(0).release(100).at(1).start_trial(1).at(9).epoch(1, 1).end(100)
        os.utime(run.paths.run, (1e9 - age, 1e9 - age))
    result = aiperf_here(verb)
    assert result.stderr.startswith("aiperf: the newest run is runs/newest\n")
    assert "Traceback" not in result.stderr


def complete(line: str) -> list[str]:
    """The words that the shell would offer after a line."""
    # The answer goes to file descriptor 8, everything else is of no interest to a shell.
    words = (
        "import os; os.dup2(1, 8); os.dup2(os.open(os.devnull, os.O_WRONLY), 1); "
        "from aiperf.__main__ import main; main()"
    )
    environment = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    shown = subprocess.run(
        [sys.executable, "-c", words], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return [word.strip() for word in shown.stdout.split("\n")]


def test_verbs_options_and_values_are_completed() -> None:
    assert complete("aiperf re") == ["resume", "report", "rehearse"]
    assert complete("aiperf run --repl") == ["--replicas"]
    assert complete("aiperf run --preset ") == ["official", "quick"]
    assert set(complete("aiperf help ")) >= set(VERBS)
    assert complete("aiperf run --set run.dur") == ["run.duration="]
    assert complete("aiperf config show run.dur") == ["run.duration"]


def test_a_run_in_a_queue_has_no_directory_yet(tmp_path: Path) -> None:
    shown = aiperf_here("status", tmp_path / "queued")
    assert shown.returncode == 2
    assert "is not there; a run in a job makes it when the job starts: ask the scheduler (squeue --me" in shown.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script(shell: str) -> None:
    script = aiperf_here("completion", shell).stdout
    assert "aiperf" in script
    assert "_ARGCOMPLETE" in script


def test_help_of_a_verb_is_the_same_both_ways() -> None:
    assert aiperf_here("help", "ops").stdout == aiperf_here("ops", "--help").stdout
    assert aiperf_here("help", "nodes", "probe").stdout == aiperf_here("nodes", "probe", "--help").stdout
    assert aiperf_here("help").stdout == aiperf_here("--help").stdout


def test_a_value_that_is_not_a_number_is_named_without_private_names() -> None:
    wrong = aiperf_here("ops", "--batch", "x")
    assert wrong.returncode == 2
    assert "'x' is not a whole number of at least 1" in wrong.stderr
    assert "_" not in wrong.stderr.splitlines()[-1].replace("--", "")
