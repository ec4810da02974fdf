"""The repository holds what it should."""

from __future__ import annotations

import subprocess

from tests.support.folders import ROOT


def git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_no_ignored_file_is_tracked() -> None:
    assert git("ls-files", "--ignored", "--cached", "--exclude-standard") == []


def test_no_module_is_ignored() -> None:
    ignored = git("ls-files", "--ignored", "--others", "--exclude-standard", "*.py")
    rooms = {path.split("/")[0] for path in git("ls-files", "*.py")}
    assert [path for path in ignored if path.split("/")[0] in rooms] == []
