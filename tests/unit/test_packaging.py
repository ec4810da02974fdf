"""Packages, containers and their locks: they install what setup.cfg asks for, and one version."""

import ast
import configparser
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import aiperf
from aiperf.cli.packages import PYTHONS
from tests.support.folders import ROOT
from tests.support.needs import need_repository
from tools.environment import PYTORCH, Environment, machine, pytorch, wanted

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
REQUIRED = {
    canonicalize_name(item.name): item.specifier
    for item in map(Requirement, SETUP["options"]["install_requires"].split())
}
ROOMS = sorted(line.rstrip("*") for line in SETUP["options.packages.find"]["include"].split())
DOCKERFILE = (ROOT / "containers" / "Dockerfile").read_text()
DEFINITION = (ROOT / "containers" / "aiperf.def").read_text()
LOCKED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def requirements_in(name: str) -> dict[str, SpecifierSet]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    found = [Requirement(line) for line in lines if line and line[0] not in "#-"]
    return {canonicalize_name(item.name): item.specifier for item in found}


def locked(name: str) -> set[tuple[str, str]]:
    return set(LOCKED.findall((ROOT / "requirements" / name).read_text()))


def test_the_version_comes_from_one_place() -> None:
    assert SETUP["metadata"]["version"] == "attr: aiperf.__version__"
    assert f"## {aiperf.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == aiperf.__version__


def test_every_package_is_typed_and_installed() -> None:
    assert sorted(path.parent.name for path in ROOT.glob("*/py.typed")) == ROOMS


# ---- the wheel and the source distribution


def test_the_source_distribution_has_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """By setuptools' own reading of MANIFEST.in; packages and some files come by themselves."""
    need_repository()
    monkeypatch.chdir(ROOT)
    listed = importlib.import_module("setuptools.command.egg_info").FileList()
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        if line and line[0] != "#":
            listed.process_template_line(line)
    shown = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    files = {
        file
        for name in shown
        if (path := Path(name)).exists()
        for file in (map(str, path.iterdir()) if path.is_symlink() and path.is_dir() else [name])
    }
    by_themselves = {"LICENSE", "README.md", "aiperf_hpc.py", "pyproject.toml", "setup.cfg"}
    packaged = {file for file in files if file.split("/")[0] in ROOMS and file.endswith(".py")} | package_data()
    assert sorted(files - packaged - by_themselves - set(listed.files)) == []


def package_data() -> set[str]:
    found = set[str]()
    for package, patterns in SETUP["options.package_data"].items():
        folders = [ROOT / room for room in ROOMS] if package == "*" else [ROOT / package.replace(".", "/")]
        for folder in folders:
            found |= {str(path.relative_to(ROOT)) for pattern in patterns.split() for path in folder.glob(pattern)}
    return found


def test_the_wheel_has_every_file_of_the_packages() -> None:
    """What is not a module is package data: machine files, templates, presets."""
    need_repository()
    shown = subprocess.run(["git", "ls-files", *ROOMS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    data = [name for name in shown.splitlines() if not name.endswith(".py") and (ROOT / name).exists()]
    assert [name for name in data if name not in package_data()] == []


# ---- locks


def extra(name: str) -> dict[str, SpecifierSet]:
    found = map(Requirement, SETUP["options.extras_require"][name].split())
    return {canonicalize_name(item.name): item.specifier for item in found}


def test_the_locked_requirements_are_those_of_the_distribution() -> None:
    assert requirements_in("base.in") == REQUIRED
    tensorflow = extra("tensorflow")
    assert requirements_in("gpu.in") == extra("gpu") == tensorflow
    assert requirements_in("run.in") == {
        name.replace("tensorflow", "tensorflow-cpu"): bounds for name, bounds in tensorflow.items()
    }
    for name in ("jax", "jax-cuda", "torch", "hybrid"):
        assert requirements_in(f"{name}.in") == extra(name)


def test_a_package_has_the_same_bounds_wherever_it_is_named() -> None:
    """In every extra, in every lock's input, and in what the conda recipe says of TensorFlow."""
    named: dict[str, set[str]] = {name: {str(bounds)} for name, bounds in REQUIRED.items()}
    sources = [extra(name) for name in SETUP["options.extras_require"]]
    sources += [requirements_in(path.name) for path in (ROOT / "requirements").glob("*.in")]
    conda = (ROOT / "packaging" / "conda" / "meta.yaml").read_text()
    sources.append({item.name: item.specifier for item in map(Requirement, re.findall(r'"(\S+>=\S+)"', conda))})
    for source in sources:
        for name, bounds in source.items():
            if str(bounds):
                named.setdefault(name, set()).add(str(bounds))
    # What builds is newer than what nnictl can do with.
    assert {name: found for name, found in named.items() if len(found) > 1} == {"setuptools": {"<81", "<81,>=77"}}


def test_every_lock_keeps_to_the_bounds() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        found = [(name, version) for name, version in locked(path.name) if name in REQUIRED]
        assert [pin for pin in found if not REQUIRED[canonicalize_name(pin[0])].contains(pin[1])] == []


def test_the_supported_pythons_are_the_same_wherever_they_are_named() -> None:
    supported = SpecifierSet(SETUP["options"]["python_requires"])
    versions = [f"3.{minor}" for minor in range(8, 20) if f"3.{minor}" in supported]
    assert re.findall(r"Python :: (3\.\d+)", SETUP["metadata"]["classifiers"]) == versions
    makefile = (ROOT / "Makefile").read_text()
    first, last = versions[0].split("."), str(int(versions[-1].split(".")[1]) + 1)
    for version in ("v", "sys.version_info"):
        assert f"({first[0]}, {first[1]}) <= {version} < (3, {last})" in makefile
    assert f"AIPerf needs Python {', '.join(versions[:-1])} or {versions[-1]}" in makefile
    assert [".".join(map(str, version)) for version in PYTHONS] == [versions[0], versions[-1]]
    for name in ("README.md", "docs/tutorial.md"):
        assert f"Python {versions[0]} to {versions[-1]}" in (ROOT / name).read_text()


def test_pytorchs_build_for_cpus_is_installed_next_to_locked_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's index has it, and is asked for nothing else: no dependencies, one version."""
    asked: list[tuple[str | Path, ...]] = []
    monkeypatch.setattr(Environment, "install", lambda _, *words: asked.append(words))
    for index in ("", "https://index.example/cpu"):
        monkeypatch.setenv("TORCH_INDEX", index)
        pytorch().install(Environment(ROOT / ".venv"))
    assert asked[0] == ("--no-deps", "--retries", "1", PYTORCH)
    assert asked[1] == ("--no-deps", "--retries", "1", "--extra-index-url", index, PYTORCH)
    assert re.fullmatch(r"torch==[\d.]+\+cpu", PYTORCH)
    assert extra("torch")["torch"].contains(PYTORCH.partition("==")[2])
    page = (ROOT / "docs" / "howto" / "airgap.md").read_text()
    assert set(re.findall(r"torch==[\w.+]*\w", page)) == {PYTORCH}
    needed = {"filelock", "fsspec", "jinja2", "networkx", "sympy", "typing-extensions"}
    for lock in ("torch-cpu.txt", "test.txt"):
        assert needed <= {name for name, _ in locked(lock)}


def test_both_builds_lock_the_same_versions() -> None:
    cpu, gpu = locked("run.txt"), locked("gpu.txt")
    versions = dict(cpu)
    assert {name for name, _ in cpu - gpu} == {"tensorflow-cpu"}
    assert {name for name, _ in gpu - cpu if not name.startswith("nvidia-")} == {"tensorflow"}
    assert dict(gpu)["tensorflow"] == versions["tensorflow-cpu"]


def test_tests_install_on_top_of_either_build() -> None:
    """Two builds of TensorFlow own the same files, so that tests must not bring one."""
    assert [name for name, _ in locked("test.txt") if name.startswith("tensorflow")] == []


def test_no_lock_needs_another_index() -> None:
    locks = [path.read_text() for path in (ROOT / "requirements").glob("*.txt")]
    assert [text for text in locks if re.search(r"^(--|-f|-i|\S+ @ )", text, re.MULTILINE)] == []


# ---- make run


def plan(*words: str, folder: Path = ROOT) -> str:
    """The commands of `make run`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "GPU", "PYTHON"))}
    make = ["make", "--dry-run", "run", *words]
    return subprocess.run(make, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def parts(forced: str = "", framework: str = "tensorflow") -> list[str]:
    """What `make run` installs."""
    return [part.name for part in wanted("run", framework, machine(forced))]


NO_DRIVER = "echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9"
ONE_GPU = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'"
TWO_GPUS = f"{ONE_GPU}; echo 'GPU 1: NVIDIA H200 (UUID: GPU-2)'"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put an nvidia-smi on the PATH, which does what it is given; no device files."""
    (tmp_path / "dev").mkdir()
    monkeypatch.setattr("tools.environment.DEVICES", tmp_path / "dev")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def put(script: str) -> None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)

    return put


def test_make_run_installs_the_cpu_build_on_a_machine_without_a_gpu(driver: Callable[[str], None]) -> None:
    driver(NO_DRIVER)
    assert parts() == ["run", "aiperf"]


def test_device_files_count_where_the_driver_gives_no_answer(driver: Callable[[str], None], tmp_path: Path) -> None:
    """A container without GPUs may show the files of its node in /proc."""
    driver(NO_DRIVER)
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (tmp_path / "dev" / name).touch()
    assert parts() == ["run", "aiperf"]
    (tmp_path / "dev" / "nvidia3").touch()
    assert parts() == ["gpu", "aiperf"]
    (tmp_path / "dev" / "nvidia4").touch()
    assert parts() == ["gpu", "aiperf", "horovod"]


def test_make_run_installs_the_gpu_build_on_a_machine_with_a_gpu(driver: Callable[[str], None]) -> None:
    driver(ONE_GPU)
    assert parts() == ["gpu", "aiperf"]


def test_make_run_builds_horovod_for_several_gpus(driver: Callable[[str], None]) -> None:
    driver(TWO_GPUS)
    assert parts() == ["gpu", "aiperf", "horovod"]


def test_the_build_can_be_forced_and_forbidden(driver: Callable[[str], None]) -> None:
    driver(NO_DRIVER)
    assert parts("1") == ["gpu", "aiperf"]
    driver(TWO_GPUS)
    assert parts("0") == ["run", "aiperf"]
    assert '--gpu "1"' in plan("GPU=1")
    assert '--gpu ""' in plan()


@pytest.mark.parametrize(
    ("name", "there", "removes"),
    [
        ("gpu", ("tensorflow_cpu",), True),
        ("gpu", ("tensorflow", "tensorflow_cpu"), True),
        ("gpu", ("tensorflow",), False),
        ("run", ("tensorflow",), True),
        ("run", ("tensorflow", "tensorflow_cpu"), True),
        ("run", ("tensorflow_cpu",), False),
    ],
)
def test_one_build_of_tensorflow_replaces_the_other(
    name: str, there: tuple[str, ...], removes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both own the same files: without those of one, pip still takes the other for installed."""
    for package in there:
        (tmp_path / f"lib/python3.11/site-packages/{package}-2.21.0.dist-info").mkdir(parents=True)
    done: list[tuple[str | Path, ...]] = []
    monkeypatch.setattr(Environment, "pip", lambda _, *words: done.append(words))
    monkeypatch.setattr(Environment, "call", lambda *_: "")
    part = wanted("run", "tensorflow", machine("1" if name == "gpu" else "0"))[0]
    part.install(Environment(tmp_path))
    assert (part.name, *part.replaces) == (name, "run" if name == "gpu" else "gpu")
    assert done[:-1] == ([("uninstall", "--yes", "tensorflow", "tensorflow-cpu")] if removes else [])
    assert done[-1][0] == "install"
    assert ROOT / "requirements" / f"{name}.txt" in done[-1]


@pytest.mark.parametrize(
    ("framework", "forced", "installed"),
    [
        ("jax", "0", ["jax", "aiperf"]),
        ("jax", "1", ["jax-cuda", "aiperf"]),
        ("torch", "0", ["torch-cpu", "pytorch", "aiperf"]),
        ("torch", "1", ["torch", "aiperf"]),
    ],
)
def test_make_run_installs_the_chosen_framework_alone(framework: str, forced: str, installed: list[str]) -> None:
    assert parts(forced, framework) == installed
    commands = plan(f"FRAMEWORK={framework}", f"GPU={forced}")
    assert f'--framework "{framework}" run' in commands
    assert f"--preset quick --framework {framework} --output" in commands


def test_the_folder_of_runs_may_have_a_space() -> None:
    assert '--output "my runs/quick-' in plan("RUNS=my runs")
    assert '"/a b/python" -m tools.environment' in plan("PYTHON=/a b/python")
    assert '--python "/a b/python"' in plan("PYTHON=/a b/python")
    assert "--python" not in plan()


@pytest.mark.parametrize(("python", "used"), [(sys.executable, ".venv/bin/python"), ("/bin/false", "python3")])
def test_later_calls_keep_the_python_of_the_environment(python: str, used: str, tmp_path: Path) -> None:
    """The system's own may be too old to run the tool."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    assert '"python3" -m tools.environment' in plan(folder=tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(python)
    commands = plan(folder=tmp_path)
    assert f'"{used}" -m tools.environment' in commands
    assert "--python" not in commands
    assert '--python "python3.12"' in plan("PYTHON=python3.12", folder=tmp_path)


# ---- containers


def steps_of_dockerfile() -> list[tuple[str, str]]:
    """Instructions and their words, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def copied() -> list[str]:
    """What the image gets from the repository."""
    return [source for word, rest in steps_of_dockerfile() if word == "COPY" for source in rest.split()[:-1]]


def test_the_image_gets_every_room_and_only_what_exists() -> None:
    sources = copied()
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {f"{room}/" for room in ROOMS} <= set(sources)


def test_the_apptainer_definition_does_as_the_dockerfile() -> None:
    files = DEFINITION.partition("%files\n")[2].partition("\n\n")[0].split()
    copies = [
        source.rstrip("/") for word, rest in steps_of_dockerfile() if word == "COPY" for source in rest.split()[:-1]
    ]
    assert sorted(files[::2]) == sorted(copies)
    assert files[1::2] == [f"/opt/aiperf/{source}" for source in files[::2]]
    post = re.sub(r"\\\n\s*", "", DEFINITION.partition("%post\n")[2].partition("\n%environment")[0])
    positions = [post.find(rest) for word, rest in steps_of_dockerfile() if word == "RUN"]
    assert positions == sorted(positions)
    assert -1 not in positions
    arguments = dict(re.findall(r"^    (\w+)=(\S*)$", DEFINITION.partition("%arguments\n")[2], re.MULTILINE))
    declared = [rest.partition("=") for word, rest in steps_of_dockerfile() if word == "ARG"]
    in_dockerfile = {name: default for name, _, default in declared}
    assert {name: arguments.get(name) for name in in_dockerfile} == in_dockerfile


def test_both_files_build_a_gpu_variant_from_a_lock_that_exists() -> None:
    for text in (DOCKERFILE, DEFINITION):
        builds = set(re.findall(r"BUILD=(\w+)", text))
        assert builds == {"run", "gpu"}
        assert all((ROOT / "requirements" / f"{build}.txt").exists() for build in builds)


# ---- Spack and conda


def test_the_conda_recipe_requires_what_the_distribution_requires() -> None:
    text = (ROOT / "packaging" / "conda" / "meta.yaml").read_text()
    plain = re.sub(r"{{.*?}}", "value", re.sub(r"{%.*?%}", "", text))
    recipe: dict[str, Any] = yaml.safe_load(plain)
    names = {"matplotlib-base": "matplotlib", "prometheus_client": "prometheus-client", "python-isal": "isal"}
    found = dict(line.split(" ", 1) for line in recipe["requirements"]["run"])
    assert SpecifierSet(found.pop("python")) == SpecifierSet(SETUP["options"]["python_requires"])
    assert {names.get(name, name): SpecifierSet(words) for name, words in found.items()} == REQUIRED
    assert recipe["build"]["entry_points"] == [SETUP["options.entry_points"]["console_scripts"].strip()]
    pattern = re.search(r"regex_pattern='(.*?)'", text)
    assert pattern
    match = re.search(pattern[1], (ROOT / "aiperf" / "__init__.py").read_text())
    assert match
    assert match[1] == aiperf.__version__


def test_the_spack_package_requires_what_the_distribution_requires() -> None:
    """Spack's `@1.2:3` is from 1.2 up to every 3.x."""
    tree = ast.parse((ROOT / "packaging" / "spack" / "package.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    called = [(node.func.id, ast.literal_eval(node.args[0])) for node in calls if isinstance(node.func, ast.Name)]
    assert {name for kind, name in called if kind == "variant"} == {"tensorflow", "gpu", "mpi"}
    ranges = {
        name.removeprefix("py-"): versions
        for kind, spec in called
        if kind == "depends_on"
        for name, _, versions in [spec.partition("@")]
    }
    assert {name: ranges.get(name) for name in REQUIRED} == {name: _spack(own) for name, own in REQUIRED.items()}


def _spack(own: SpecifierSet) -> str:
    """`>=1.2,<3` as Spack writes it: `1.2:2`."""
    bounds = {item.operator: item.version for item in own}
    lowest = bounds[">="].removesuffix(".0")
    if "<" not in bounds:
        return f"{lowest}:"
    *head, last = map(int, bounds["<"].split("."))
    highest = ".".join(map(str, [*head, last - 1]))
    return lowest if lowest == highest else f"{lowest}:{highest}"


# ---- citation, forms, workflow


def test_the_citation_has_what_its_schema_requires() -> None:
    """Of Citation File Format 1.2.0: required keys, allowed types, and the keys of the paper."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert all(isinstance(citation[key], str) and citation[key] for key in ("message", "title", "abstract", "license"))
    assert citation["type"] in ("software", "dataset")
    paper = citation["preferred-citation"]
    assert (paper["type"], paper["year"], paper["start"], paper["end"]) == ("article", 2021, 208, 220)
    for author in citation["authors"]:
        assert set(author) == {"name"}
    bibtex = (ROOT / "README.md").read_text().partition("author  = {")[2].partition("},")[0]
    named = [" ".join(name.split()) for name in re.split(r"\sand\s", bibtex)]
    assert [f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]] == named


@pytest.mark.parametrize("form", sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")), ids=lambda path: path.stem)
def test_a_form_has_a_name_and_questions_with_labels(form: Path) -> None:
    content = yaml.safe_load(form.read_text())
    assert content["name"]
    assert content["description"]
    identifiers = [question["id"] for question in content["body"]]
    assert len(set(identifiers)) == len(identifiers)
    assert all(question["attributes"]["label"] for question in content["body"])


def test_the_workflow_runs_what_the_repository_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    job = workflow["jobs"]["test"]
    (run,) = (step["run"] for step in job["steps"] if "run" in step)
    assert run.startswith("sudo ") and run.endswith(" make ${{ matrix.target }}"), "only root installs Debian packages"
    jobs = [(each["python"], each["target"]) for each in job["strategy"]["matrix"]["include"]]
    assert jobs == [("3.11", "test"), ("3.12", "contract"), ("3.13", "contract"), ("3.11", "run")]
    assert {python for python, _ in jobs} == {*re.findall(r"Python :: (3\.\d+)", SETUP["metadata"]["classifiers"])}
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_documents_install_from_the_sources() -> None:
    """No index has a package of this name; anyone could take it."""
    need_repository()
    files = subprocess.run(
        ["git", "grep", "-l", r"aiperf-hpc\["], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert set(files.stdout.split()) <= {"tests/unit/test_packaging.py"}
