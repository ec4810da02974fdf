"""The environment that `make env` makes is whole, whatever happens while it is made."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiperf.files import cache_folder
from tests.support.folders import ROOT
from tests.support.machines import MACHINES, imitate
from tools import build_horovod
from tools.check_interruptions import INVENTORY
from tools.environment import Environment, NotMadeError, horovod_wheel, machine, own_variables

STAND_IN = """#!{python} -IS
import os, shutil, signal, sys
from pathlib import Path

words = sys.argv[1:]
log = Path(os.environ["STAND_IN"])

def step(name):
    with open(log, "a") as file:
        file.write(name + "\\n")
    if os.environ.get("STAND_IN_STEP") == str(len(log.read_text().splitlines())):
        number = int(os.environ["STAND_IN_SIGNAL"])
        os.kill(os.getppid(), number)
        if number != signal.SIGKILL:  # an orphan of a killed process goes on
            sys.exit(1)

if words[0] == "-c":
    print(os.environ.get("STAND_IN_VERSION", "3.11"), "{base}")
elif words[1] == "venv":
    folder = Path(words[-1])
    for entry in folder.iterdir() if folder.exists() else ():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    step("venv")
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    step("bin")
    shutil.copy(__file__, folder / "bin" / "python")
    (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    step("site-packages")
    if os.environ.get("STAND_IN_WAITS"):
        open(os.environ["STAND_IN_WAITS"]).read()
elif "pip" in words and "install" in words:
    if os.environ.get("STAND_IN_OFFLINE"):
        sys.exit("no network")
    packages = Path(__file__).parents[1] / "lib" / "python3.11" / "site-packages"
    for name in [Path(word).stem for word in words if word.endswith(".txt")] or ["aiperf"]:
        if (packages / (name + ".dist-info")).exists():  # pip takes it for installed
            continue
        (packages / (name + ".dist-info")).mkdir()
        if name == "aiperf":
            (packages / "__editable__.aiperf_hpc-0.2.0.pth").touch()
        step(name + " begins")
        for number in range(3):
            (packages / f"{{name}}{{number}}.py").touch()
            step(name)
"""
"""A Python with pip, for which what has a dist-info is installed."""

FILES = sorted(f"{name}{number}.py" for name in ("aiperf", "build", "run") for number in range(3))
STEPS = 15
"""Of an environment with AIPerf and two lock files: three of venv, four of each."""


@dataclass
class Checkout:
    """A checkout with small lock files, and a stand-in for Python."""

    folder: Path
    python: Path
    log: Path

    def start(self, *what: str, **variables: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-S", "-m", "tools.environment", "--gpu", "0", *(what or ("run",))]
        if "--python" not in what:
            command[4:4] = ["--python", str(self.python)]
        environment = {**os.environ, "STAND_IN": str(self.log), **variables}
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell starts background jobs with SIGINT ignored, which programs inherit.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (one call of the system)
        )

    def make(self, *what: str, **variables: str) -> tuple[int, str]:
        process = self.start(*what, **variables)
        err = process.communicate()[1]
        return process.returncode, err

    def steps(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob(".venv/lib/python3.11/site-packages/*.py"))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder = tmp_path / "a checkout"
    for name in (
        "setup.cfg",
        "pyproject.toml",
        "aiperf/__init__.py",
        "aiperf/host.py",
        "tools/environment.py",
        "tools/build_horovod.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "requirements").mkdir()
    for name in ("run", "gpu", "build", "test", "horovod", "torch", "torch-cpu"):
        (folder / "requirements" / f"{name}.txt").write_text(f"{name}==1\n")
    python = tmp_path / "python"
    python.write_text(STAND_IN.format(python=sys.executable, base=python))
    python.chmod(0o755)
    return Checkout(folder, python, tmp_path / "steps")


def test_an_environment_is_made_once(checkout: Checkout) -> None:
    assert checkout.make()[0] == 0
    assert checkout.files() == FILES
    assert len(checkout.steps()) == STEPS
    assert checkout.make() == (0, "")
    assert checkout.make("run", "--python", "") == (0, "")
    assert len(checkout.steps()) == STEPS


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_environment_that_was_interrupted_at_any_step_ends_whole(checkout: Checkout, number: int) -> None:
    for step in range(1, STEPS + 1, 3):
        shutil.rmtree(checkout.folder / ".venv", ignore_errors=True)
        checkout.log.unlink(missing_ok=True)
        code, _ = checkout.make(STAND_IN_STEP=str(step), STAND_IN_SIGNAL=str(int(number)))
        assert code == (-9 if number == signal.SIGKILL else 130), step
        assert checkout.make()[0] == 0
        assert checkout.files() == FILES, step


def test_two_at_once_make_one(checkout: Checkout, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = checkout.start(STAND_IN_WAITS=str(gate))
    with gate.open("w"):  # opened once the first one is in the middle
        second = checkout.start()
        assert second.stderr
        assert "another process makes" in second.stderr.readline()
    assert (first.wait(), second.wait()) == (0, 0)
    first.communicate()
    second.communicate()
    assert (checkout.files(), len(checkout.steps())) == (FILES, STEPS)


def test_a_moved_and_a_copied_checkout_get_environments_of_their_own(checkout: Checkout, tmp_path: Path) -> None:
    checkout.make()
    for name in ("copied", "moved"):
        (shutil.copytree if name == "copied" else shutil.move)(checkout.folder, tmp_path / name)
        there = Checkout(tmp_path / name, checkout.python, checkout.log)
        code, err = there.make()
        assert (code, f"was made in {checkout.folder}" in err) == (0, True)
        assert there.files() == FILES
        assert there.make() == (0, "")


def test_another_content_is_installed_whatever_its_time(checkout: Checkout) -> None:
    """A release that is unpacked over another one has older times."""
    checkout.make()
    lock = checkout.folder / "requirements" / "run.txt"
    for folder in checkout.folder.glob(".venv/lib/python3.11/site-packages/run.dist-info"):
        folder.rmdir()
    lock.write_text("run==2\n")
    os.utime(lock, (1, 1))
    code, err = checkout.make()
    assert (code, "installing run" in err, "installing aiperf" in err) == (0, True, False)
    checkout.log.unlink()
    os.utime(lock)
    assert checkout.make() == (0, "")


def test_code_that_was_installed_as_a_copy_by_hand_is_installed_in_place_again(checkout: Checkout) -> None:
    checkout.make()
    (packages,) = checkout.folder.glob(".venv/lib/python3.11/site-packages")
    (packages / "__editable__.aiperf_hpc-0.2.0.pth").unlink()
    (packages / "aiperf.dist-info").rmdir()
    code, err = checkout.make()
    assert (code, "installing aiperf" in err, "installing run" in err) == (0, True, False)


def test_without_a_network_nothing_that_works_is_lost(checkout: Checkout) -> None:
    checkout.make()
    (checkout.folder / "requirements" / "run.txt").write_text("run==2\n")
    code, err = checkout.make(STAND_IN_OFFLINE="yes")
    assert (code, "no network" in err) == (1, True)
    assert checkout.files() == FILES
    code, err = checkout.make()
    assert (code, "making it" in err) == (0, False)


@pytest.mark.parametrize(("gpu", "spoilt"), [("1", ["torch"]), ("0", ["torch-cpu"])])
def test_a_part_whose_packages_another_one_replaced_is_installed_again(
    gpu: str, spoilt: list[str], checkout: Checkout
) -> None:
    def installed(*what: str) -> list[str]:
        code, err = checkout.make(*what, "--gpu", gpu)
        assert code == 0
        return re.findall(r"installing (\S+) in", err)

    training, tests = ("run", "--framework", "torch"), ("test",)
    installed(*training)
    assert "test" in installed(*tests)
    assert installed(*training) == spoilt
    assert installed(*tests) == (["test", "pytorch"] if gpu == "1" else ["test"])


def test_what_tests_can_do_without_is_named_and_tried_again(checkout: Checkout) -> None:
    checkout.make()
    code, err = checkout.make("test-horovod", STAND_IN_OFFLINE="yes")
    assert (code, "Horovod CANNOT BE INSTALLED" in err) == (0, True)
    code, err = checkout.make("horovod", STAND_IN_OFFLINE="yes")
    assert (code, "start it again" in err) == (1, True)


def test_pip_installs_into_the_environment_by_the_rules_of_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = ("TARGET", "PREFIX", "ROOT", "PYTHON", "DRY_RUN", "USER", "REQUIRE_HASHES")
    site = ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX", "CONSTRAINT", "CERT", "PROXY")
    for name in (*elsewhere, *site):
        monkeypatch.setenv(f"PIP_{name}", "1")
    asked = {f"PIP_{name}" for name in (*elsewhere, *site)}
    passed = {name: value for name, value in own_variables().items() if name in asked}
    assert passed == {f"PIP_{name}": "1" for name in site} | {"PIP_USER": "0", "PIP_REQUIRE_HASHES": "0"}


@pytest.mark.parametrize(
    ("cpus", "gib", "number"), [(3, 64, 3), (64, 21, 10), (64, 1, 1)], ids=["CPUs", "memory", "little memory"]
)
def test_horovod_is_built_by_as_many_compilers_as_find_room(
    cpus: int, gib: int, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(replace(MACHINES["1 core"], cpus=cpus, available=gib << 30), tmp_path, monkeypatch)
    monkeypatch.setattr(Environment, "call", lambda _, *words, **__: words[-1])
    assert horovod_wheel(Environment(tmp_path), machine("0")) == str(number)
    built: list[dict[str, str]] = []
    monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda: nullcontext(str(tmp_path)))
    monkeypatch.setattr(build_horovod, "fetch", lambda folder: folder)
    monkeypatch.setattr(build_horovod, "patch", lambda _: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def build(*_: object, env: dict[str, str], **__: object) -> subprocess.CompletedProcess[str]:
        built.append(env)
        (tmp_path / "a.whl").touch()
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(subprocess, "run", build)
    assert build_horovod.main([str(number)]) == 0
    assert built[0]["MAKEFLAGS"] == f"-j{number}"


@pytest.mark.parametrize("value", ["", "relative"])
def test_horovods_wheels_are_where_all_that_can_be_made_again_is(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (value, "/elsewhere"):
        monkeypatch.setenv("XDG_CACHE_HOME", name)
        assert build_horovod.cache_folder().parent == cache_folder()


@pytest.mark.parametrize("place", ["/dev/null/cache", ""], ids=["a folder that cannot be", "no home"])
def test_horovods_wheel_without_a_place_is_refused_before_it_is_built(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    monkeypatch.setattr(build_horovod, "tensorflow_version", lambda: "tensorflow-2.21.0")
    assert build_horovod.main([]) == build_horovod.NO_CACHE
    assert capsys.readouterr().err.endswith("; set XDG_CACHE_HOME to a folder that can be written\n")

    def refused(*_: object, **__: object) -> str:
        raise NotMadeError("exit code 3", build_horovod.NO_CACHE)

    monkeypatch.setattr(Environment, "call", refused)
    with pytest.raises(NotMadeError, match=r"^exit code 3$"):  # nothing about compilers
        horovod_wheel(Environment(tmp_path), machine("0"))


@pytest.mark.parametrize("defect", ["by hand", "no python", "another version", "half a state"])
def test_an_environment_that_does_not_work_is_made_anew(checkout: Checkout, defect: str) -> None:
    state = checkout.folder / ".venv" / "whole.json"
    checkout.make()
    if defect == "by hand":
        state.unlink()
    elif defect == "no python":
        (checkout.folder / ".venv" / "bin" / "python").unlink()
    elif defect == "another version":
        document = json.loads(state.read_text())
        state.write_text(json.dumps({**document, "python": ["3.10", document["python"][1]]}))
    else:
        state.write_text(state.read_text()[:30])
    code, err = checkout.make()
    assert (code, "making it with" in err) == (0, True)
    assert (checkout.files(), checkout.make()) == (FILES, (0, ""))


def test_an_environment_is_made_anew_by_a_program_of_its_own(checkout: Checkout) -> None:
    python = checkout.folder / ".venv" / "bin" / "python"
    venv.create(checkout.folder / ".venv", symlinks=True)
    words = [str(python), "-m", "tools.environment", "--gpu", "0", "run"]
    without = {**own_variables(), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = subprocess.run(words, cwd=checkout.folder, env=without, capture_output=True, text=True, check=False)
    assert "made by something else: making it with" in done.stderr
    assert (done.returncode, "exit code 1 of:" in done.stderr) == (1, True), "no index has the packages"
    subprocess.run([python, "-m", "pip", "--version"], check=True)


def test_an_environment_that_can_only_be_read_is_used(checkout: Checkout) -> None:
    checkout.make()
    (checkout.folder / ".venv.lock").unlink()
    assert checkout.make() == (0, "")
    assert not (checkout.folder / ".venv.lock").exists()


def test_the_check_of_interruptions_finds_a_file_that_is_missing_or_cut(tmp_path: Path) -> None:
    notes = tmp_path / "one-1.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text("Metadata-Version: 2.1\nName: one\nVersion: 1\n")
    (notes / "RECORD").write_text("one.py,,4\ntwo.py,,4\none-1.dist-info/RECORD,,\n")
    (tmp_path / "one.py").write_text("1234")

    def found(two: str | None) -> object:
        (tmp_path / "two.py").unlink(missing_ok=True) if two is None else (tmp_path / "two.py").write_text(two)
        words = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = [{str(tmp_path)!r}, *sys.path]\n{INVENTORY}"]
        packages, defects = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        assert packages == ["one==1"]
        return defects

    assert found("1234") == []
    assert found("123") == found(None) == [str(tmp_path / "two.py")]


def test_every_module_is_compiled_by_processes_that_wait_for_no_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Workers of a pool, once their parent was killed, would wait for ever, with the lock."""
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    for number in range(7):
        (packages / f"module{number}.py").write_text("1 is 1  # of which Python warns")
    (packages / "older.py").write_text("print 1")
    imitate(replace(MACHINES["1 core"], cpus=3), tmp_path / "machine", monkeypatch)
    started: list[list[str]] = []
    popen = subprocess.Popen

    def recorded(words: Any, **options: Any) -> Any:
        started.append(list(map(str, words)))
        return popen(words, **options)

    monkeypatch.setattr(subprocess, "Popen", recorded)
    Environment(tmp_path).compile()
    assert sorted(path.name.partition(".")[0] for path in packages.glob("__pycache__/*")) == [
        f"module{number}" for number in range(7)
    ]
    assert len(started) == 3
    assert capfd.readouterr() == ("", "")
    assert not any(word.startswith("-j") for words in started for word in words)
