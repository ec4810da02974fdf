"""Packages of the same names as AIPerf's are named with their place, and what to do."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import aiperf_hpc
from aiperf.cli import packages
from tests.support.folders import ROOT


def run(*words: str, path: Path, cwd: Path | None = None) -> tuple[int, str]:
    """Start a Python with `path` as PYTHONPATH, before everything that is installed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (path, ROOT)))}
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd or path, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_all_packages_are_looked_at() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert sorted(packages.PACKAGES) == sorted(setup["options.packages.find"]["include"].replace("*", "").split())
    assert (packages.foreign(), packages.copied()) == ([], [])


@pytest.mark.parametrize("kind", ["package", "module"])
@pytest.mark.parametrize("way", ["script", "module"])
def test_another_package_on_the_path_is_named(kind: str, way: str, tmp_path: Path) -> None:
    place = tmp_path / ("analysis.py" if kind == "module" else "analysis/__init__.py")
    place.parent.mkdir(exist_ok=True)
    place.touch()
    start = ("-m", "aiperf") if way == "module" else ("-c", "import sys, aiperf_hpc; sys.exit(aiperf_hpc.main())")
    code, err = run("-P", *start, "report", "runs/first", path=tmp_path, cwd=ROOT)
    assert code == 3
    assert err.startswith(f"aiperf: analysis is of another package ({place}): unset PYTHONPATH, or install")
    assert "Traceback" not in err


def test_another_aiperf_is_named(tmp_path: Path) -> None:
    (tmp_path / "aiperf").mkdir()
    (tmp_path / "aiperf" / "__init__.py").touch()
    code, err = run("-P", "-c", "import sys, aiperf_hpc; sys.exit(aiperf_hpc.main())", path=tmp_path)
    assert (code, "Traceback" in err) == (3, False)
    assert f"the package aiperf would be {tmp_path / 'aiperf' / '__init__.py'}" in err


def test_a_distribution_that_shares_a_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: {"slurm": ["aiperf-hpc", "slurm-tools"]})
    (text,) = packages.shared()
    assert text.startswith("slurm is also of the distribution slurm-tools")
    error = ModuleNotFoundError("No module named 'slurm.cli'", name="slurm.cli")
    assert packages.lost(error) == [f"{text}: {packages.REMEDY}"]
    monkeypatch.setattr("importlib.metadata.packages_distributions", dict)
    assert packages.lost(error) == ["No module named 'slurm.cli': install AIPerf again"]
    assert packages.lost(ModuleNotFoundError("No module named 'numpy'", name="numpy")) == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == "referee" else find_spec(name))
    assert packages.foreign() == [f"referee is missing in {ROOT}: install AIPerf again"]


def test_a_copied_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first line names the Python of the original, whose code would run."""
    copy = tmp_path / "checkout" / ".venv"
    (copy / "bin").mkdir(parents=True)
    (copy / "pyvenv.cfg").touch()
    monkeypatch.setattr(sys, "argv", [str(copy / "bin" / "aiperf")])
    (text,) = packages.copied()
    assert f"was copied or moved from {sys.prefix}" in text
    assert text.endswith(f"make it anew: make -C {tmp_path / 'checkout'} env")
    shutil.rmtree(copy)
    assert packages.copied() == []


def test_the_command_starts_the_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["aiperf", "--version"])
    assert aiperf_hpc.main() == 0
    assert capsys.readouterr().out.startswith("aiperf ")
