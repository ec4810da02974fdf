"""Packages of the same names as AIPerf's are named with their place, and what to do."""

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
from replica.measure.micro import native_library
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


def test_what_to_install_is_said_to_those_who_have_the_wheel_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is published as aiperf-hpc, and there are no sources: the packages are named."""
    in_sources = packages.to_install("tensorflow", "gpu")
    assert in_sources == "in the folder of AIPerf's sources: pip install '.[tensorflow]' (or '.[gpu]')"
    monkeypatch.setattr(packages, "OWN", tmp_path)
    required = ["numpy>=2.1", "nni<4,>=3.0; extra == 'nni'".replace("'", '"'), 'setuptools<81; extra == "nni"']
    monkeypatch.setattr("importlib.metadata.requires", lambda _: required)
    assert packages.to_install("nni") == "pip install 'nni<4,>=3.0' 'setuptools<81'"


def test_the_native_library_of_a_wheel_is_one_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "OWN", tmp_path)
    monkeypatch.delenv(native_library.VARIABLE, raising=False)
    assert native_library.why_no_library().endswith(f"is not built; 'make native' builds it, in {tmp_path}")
    monkeypatch.setattr(native_library, "is_checkout", lambda: False)
    assert "export AIPERF_NATIVE=SOURCES/build/native/libaiperf_micro.so" in native_library.why_no_library()
    monkeypatch.setenv(native_library.VARIABLE, str(tmp_path / "none.so"))
    assert "none.so, which AIPERF_NATIVE names, is not there" in native_library.why_no_library()
    (tmp_path / "none.so").touch()
    assert native_library.why_no_library() == ""
