"""The names that `import aiperf` offers, and the page that shows them."""

import getpass
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aiperf
from aiperf.__main__ import main
from tests.support.folders import DOCS
from tests.support.hand_made import HandMadeRun

PAGE = DOCS / "api.md"


def test_importing_aiperf_imports_no_large_library() -> None:
    words = "import sys, aiperf; print(sorted({'numpy', 'pandas', 'pydantic', 'rich', 'keras'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


def test_the_page_names_every_export() -> None:
    text = PAGE.read_text()
    assert [name for name in aiperf.__all__ if name != "__version__" and f"aiperf.{name}" not in text] == []


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    HandMadeRun(tmp_path / "runs" / "first").at(0).release(100).at(1).start_trial(1).at(9).epoch(1, 1).end_trial(1).end(
        100
    )
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, "api.md", "exec"), {})
    shown = capsys.readouterr().out
    assert shown.startswith("23053460364\n")
    assert "1437" in shown


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        aiperf.nothing  # noqa: B018


def test_a_user_without_a_name_and_a_home_gets_both_for_the_time_being(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises((KeyError, RuntimeError)):
        Path.home()
    assert main(["--version"]) == 0
    assert Path.home().is_dir()
    assert getpass.getuser().startswith("uid")
