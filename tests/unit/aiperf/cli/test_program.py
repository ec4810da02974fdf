"""Commands in messages are those that work in the shell that started the program."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.__main__ import main
from aiperf.cli.console import PlainConsole
from aiperf.cli.lines import say
from aiperf.cli.program import as_typed, program


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An environment with the command `aiperf`, in a folder with a space, which is not active."""
    command = tmp_path / "a checkout" / ".venv" / "bin" / "aiperf"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(command), "run"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    program.cache_clear()
    yield command.parent
    program.cache_clear()


def test_in_an_active_environment_it_is_the_name(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{environment}{os.pathsep}/usr/bin")
    assert program() == "aiperf"


def test_in_the_checkout_it_is_the_short_path(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(environment.parents[1])
    assert as_typed("next: aiperf check runs/first") == "next: .venv/bin/aiperf check runs/first"


def test_elsewhere_it_is_the_whole_path(environment: Path) -> None:
    assert program() == f"'{environment}/aiperf'"


def test_in_a_folder_that_was_removed_it_is_the_whole_path(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    assert program() == f"'{environment}/aiperf'"


def test_without_the_command_it_is_the_module(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/sources/aiperf/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(environment / "python"))
    (environment / "aiperf").unlink()
    assert program() == f"'{environment}/python' -m aiperf"


def test_another_aiperf_on_the_path_is_not_meant(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aiperf").write_text("#!/bin/sh\n")
    (tmp_path / "aiperf").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == f"'{environment}/aiperf'"


@pytest.mark.parametrize(
    "text", ["aiperf 0.2.0", "runs/aiperf run", "made by aiperf itself", "my-aiperf run", "aiperf runs"]
)
def test_what_is_not_a_command_stays(text: str) -> None:
    assert as_typed(text) == text


def test_lines_tables_and_errors_show_it(
    environment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(environment.parents[1])
    say("stop it: aiperf stop runs/first")
    PlainConsole(width=100).print("try `aiperf doctor`")
    assert main(["statsu"]) == 2
    out, err = capsys.readouterr()
    assert out == "stop it: .venv/bin/aiperf stop runs/first\ntry `.venv/bin/aiperf doctor`\n"
    assert "'.venv/bin/aiperf --help' lists all verbs" in err
