"""The tutorial's laptop part, typed as it stands, in seconds and with the simulated trainer."""

from pathlib import Path

import pytest

from tests.support.documentation.commands import Written, commands_in
from tests.support.folders import DOCS
from tests.support.hand_made import aiperf
from tests.support.runs import AT_RANDOM

ELSEWHERE = frozenset({"doctor", "dashboard", "resume"})
"""Verbs with suites of their own: slow, a server, and after Ctrl-C."""

QUICK = ("--set", "training.trainer=simulated", *AT_RANDOM)
"""Options that make a run of seconds of the tutorial's run of minutes."""


def laptop_commands() -> list[Written]:
    text = (DOCS / "tutorial.md").read_text()
    part = text[text.index("\n## 2.") : text.index("\n## 4.")]
    return [command for command in commands_in(part, "tutorial.md") if command.whole]


def test_the_laptop_part_of_the_tutorial_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [command.words[1:] for command in laptop_commands() if command.words[1] not in ELSEWHERE]
    assert [words[0] for words in commands] == ["config", "run", "status", "report", "check"]
    for words in commands:
        shortened = tuple("10s" if word == "5m" else word for word in words)
        result = aiperf(*shortened, *(QUICK if "--duration" in words else ()), page=words[0] == "report")
        assert result.returncode == 0, (words, result.stderr)
    assert (tmp_path / "runs" / "first" / "report" / "report.html").exists()
