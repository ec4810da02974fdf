"""Every command in every document is one that its program understands."""

import argparse
import contextlib
import functools
import importlib.util
import io
import itertools
import re
from collections.abc import Sequence
from configparser import ConfigParser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from aiperf.__main__ import main, parser_of
from aiperf.cli.run_options import read_run_options
from aiperf.cli.verbs import VERBS
from aiperf.config.settings import load_config
from aiperf.errors import ConfigError
from tests.support.documentation.commands import Written, commands_in, commands_of, documents, fenced_blocks
from tests.support.documentation.imports import needed
from tests.support.folders import ROOT

DOCUMENTS = documents()
CHEAP = (("slurm", "script"), ("config", "show"))
MISSING = re.compile(r"the following arguments are required|expected (?:at least )?one argument")
"""Complaints that a sentence may ignore: it names an option without its value."""


@pytest.fixture(autouse=True)
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's folder: the examples, and a run."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "run.json").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_document_are_understood(document: Path) -> None:
    found = [(str(command), complaint_of(command)) for command in commands_of(document)]
    assert [(command, complaint) for command, complaint in found if complaint] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_settings_of_a_document_exist(document: Path, tmp_path: Path) -> None:
    for block in fenced_blocks(document, "toml"):
        (tmp_path / "block.toml").write_text(block)
        load_config(tmp_path / "block.toml")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_cheap_commands_of_a_document_work(document: Path) -> None:
    """Those that only read settings and write a file; there is no run to resume."""
    whole = [command for command in commands_of(document) if command.whole and "--resume" not in command.words]
    found = [command for command in whole if command.words[1:3] in CHEAP]
    assert [str(command) for command in found if main(command.words[1:]) != 0] == []


def test_there_are_commands_in_the_pages_for_newcomers() -> None:
    for name in ("README.md", "docs/tutorial.md", "docs/clusters.md", "docs/reference/command-line.md"):
        assert len([command for command in commands_of(ROOT / name) if command.whole]) >= 8, name


ENVIRONMENTS = {
    "benchmarks": "make test-env",
    "tests": "make test-env",
    "conformance.make": "make test-env",
    "tools.build_horovod": "make env",
    "primary.launchers.ray": "pip install '.[ray]'",
    "": "make env",
}
"""The set-up that `python -m MODULE` needs, by the beginning of the module."""


@functools.cache
def installed_by(set_up: str) -> frozenset[str]:
    """The packages that can be imported after a set-up, by the names of their modules."""
    # A wheel brings what every lock has of it.
    locks = ["run", "build", *(["test", "horovod"] if set_up == "make test-env" else [])]
    extras = re.findall(r"\w+", set_up.partition("[")[2])
    texts = [(ROOT / "requirements" / f"{name}.txt").read_text() for name in locks]
    names: set[str] = {
        canonicalize_name(name) for text in texts for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)
    }
    if set_up == "wheel":
        names -= {"tensorflow-cpu", "keras", "setuptools"}
    # Tests do without these two if they cannot be installed: they are not looked for.
    no_lock = {"torch", "horovod"} if set_up == "make test-env" else set()
    names |= no_lock | set(extras)
    owners = metadata.packages_distributions()
    found = {name for name in owners if any(canonicalize_name(owner) in names for owner in owners[name])}
    return frozenset(found | no_lock)


def set_up_of(module: str) -> str:
    return next(found for prefix, found in ENVIRONMENTS.items() if not prefix or f"{module}.".startswith(f"{prefix}."))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_starts_is_there_after_the_set_up_that_it_names(document: Path) -> None:
    """What a module imports is in the locks of its environment, which its page names."""
    for command in commands_of(document):
        if command.words[:2] == ("python", "-m"):
            set_up = set_up_of(command.words[2])
            missing = {name: by for name, by in needed(command.words[2]).items() if name not in installed_by(set_up)}
            assert missing == {}, f"{command}, after {set_up}"
            if set_up == "make test-env":
                assert f"`{set_up}`" in document.read_text(), f"{command}: name {set_up}"


def test_what_is_missing_after_a_set_up_is_found() -> None:
    """`make env` installs nothing that decodes JPEGs without TensorFlow."""
    missing = set(needed("benchmarks.training")) - installed_by("make env")
    assert missing >= {"cv2", "simplejpeg", "torch", "jax"}
    assert set(needed("primary.launchers.ray.driver")) - installed_by("make env") == {"ray"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_needs_what_is_always_installed(verb: str) -> None:
    """Of frameworks and extras it is said what to install, when they are needed."""
    module = VERBS[verb][0].partition(":")[0]
    assert set(needed(module)) <= installed_by("wheel"), module


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_that_installs_and_runs_installs_a_framework(document: Path) -> None:
    whole = [command.words for command in commands_of(document) if command.whole]
    installs = " ".join(word for words in whole if words[:2] == ("pip", "install") for word in words)
    if ("make", "env") in whole:
        return
    if installs and any(words[:2] == ("aiperf", "run") for words in whole):
        assert re.search(r"tensorflow|jax|torch|gpu|requirements/", installs), installs


@pytest.mark.parametrize(
    "text",
    [
        "    aiperf run --nosuch 3",
        "    aiperf rum --replicas 3",
        "    aiperf run --set run.nosuch=3",
        "    aiperf run --replicas",
        '    eval "$(aiperf slurm testcluster begin)"',
        "    sleep 3 && aiperf rank --html",
        "```sh\naiperf run \\\n    --nosuch 3\n```",
        "Type `aiperf rank --nosuch`.",
        "Type `aiperf slurm submit`.",
        "| type |\n|---|\n| `aiperf status --nosuch DIR` |",
        "    make nosuch",
        "    make faults NOSUCH=3",
        "    python -m benchmarks.nosuch",
        "    python -m benchmarks.launch --nosuch 3",
        "    python tools/nosuch.py",
        "    pip install '.[nosuch]'",
        "    pip install -r requirements/nosuch.txt",
        "    pip install -r requirements/run.txt .",
        "Type `pip install -r requirements/run.txt '.[nni]'`.",
        "    tools/nosuch.sh",
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str) -> None:
    assert [bool(complaint_of(command)) for command in commands_in(text, "page.md")] == [True]


def complaint_of(command: Written) -> str:
    """Why a command is not understood; nothing if it is."""
    program, *words = command.words
    if program == "aiperf":
        return complaint_of_verb(words, command.whole)
    check = {"make": complaint_of_make, "python": complaint_of_python, "pip": complaint_of_pip}.get(program)
    return check(words) if check else "" if (ROOT / program).exists() else "no such file"


def complaint_of_verb(words: Sequence[str], whole: bool) -> str:
    if not whole and any("|" in word for word in words):  # `aiperf slurm script|configure`
        variants = itertools.product(*(word.split("|") for word in words))
        return next(filter(None, (complaint_of_verb([*some, "..."], whole) for some in variants)), "")
    if words[0] in ("help", "--help", "--version"):
        return "" if all(word == "VERB" or word in VERBS for word in words[1:]) else "no such verb"
    if words[0] not in VERBS:
        return "" if not whole and words[0] == "VERB" else "no such verb"
    parser = parser_of(words[0])
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    if unknown := sorted(options - options_of(parser, words)):
        return f"unknown: {unknown}"
    placeholders = not whole and any(word == "..." or re.fullmatch(r"[A-Z]+", word) for word in words[1:])
    return complaint_of_parser(parser, words[1:], whole, placeholders)


def options_of(parser: argparse.ArgumentParser, words: Sequence[str]) -> set[str]:
    """The options of a verb, and of its action if the words name one."""
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name in set(action.choices) & set(words):
                found |= set(action.choices[name]._option_string_actions)
                kinds = getattr(action.choices[name], "kinds", {})  # `aiperf dataset synthesize hep`
                for kind in set(kinds) & set(words):
                    found |= set(kinds[kind]._option_string_actions)
    return found


def complaint_of_parser(parser: argparse.ArgumentParser, words: Sequence[str], whole: bool, placeholders: bool) -> str:
    for word in words:
        if word.endswith(".toml") and not Path(word).exists():
            Path(word).touch()
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            parsed = parser.parse_args(words)
        key = hasattr(parsed, "key") and parsed.config and parsed.config.suffix != ".toml"  # aiperf config show KEY
        if hasattr(parsed, "measured"):  # rehearsals and predictions simulate the trainer
            parsed.overrides = [*parsed.overrides, "training.trainer=simulated"]
        if hasattr(parsed, "overrides") and not placeholders and not key:
            read_run_options(parsed)
    except SystemExit:
        message = messages.getvalue().strip().rpartition("\n")[2]
        return "" if not whole and (placeholders or MISSING.search(message)) else message
    except ConfigError as error:
        return str(error)
    return ""


def complaint_of_make(words: Sequence[str]) -> str:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^(\w+) \?=", makefile, re.MULTILINE)) | {"HOROVOD_CUDA_HOME", "HOROVOD_NCCL_HOME"}
    unknown = [word for word in words if word.partition("=")[0] not in (variables if "=" in word else targets)]
    return f"unknown: {unknown}" if unknown else ""


def complaint_of_python(words: Sequence[str]) -> str:
    """A module of the repository with options that its source names, or a script that is there."""
    words = [word for word in words if word != "-P"]
    if words[0] == "-c":
        return ""
    if words[0] != "-m":
        return "" if (ROOT / words[0]).exists() else "no such script"
    try:
        module = importlib.util.find_spec(words[1])
        if module and module.submodule_search_locations:
            module = importlib.util.find_spec(f"{words[1]}.__main__")
    except ModuleNotFoundError:
        module = None
    if not module or not module.origin:
        return "no such module"
    source = Path(module.origin).read_text()
    unknown = [word for word in words[2:] if word.startswith("--") and f'"{word.partition("=")[0]}"' not in source]
    return f"unknown: {unknown}" if unknown else ""


def complaint_of_pip(words: Sequence[str]) -> str:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = {name for word in words for names in re.findall(r"\[([\w,]+)\]", word) for name in names.split(",")}
    unknown = extras - set(setup["options.extras_require"])
    if unknown:
        return f"unknown extras: {sorted(unknown)}"
    locks = [word for word in words if word.startswith("requirements/") and word.endswith(".txt")]
    if missing := [name for name in locks if not (ROOT / name).exists()]:
        return f"no such file: {missing}"
    # One hash makes pip ask for them all, and a folder has none.
    hashed = any("--hash=" in (ROOT / name).read_text() for name in locks)
    return "a folder among packages with hashes" if hashed and any(re.match(r"\.($|\[|/)", w) for w in words) else ""
