"""Make `.venv` from locked requirements, whole or not at all: `python -m tools.environment WHAT`.

The Makefile calls it. An environment has a file `whole.json`, which says of what it was made, and
which is gone while anything changes. An environment without it, of another place or of another
Python is made anew. Contents are compared, not times. Only one process at a time makes one.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.host import this_host
from tools.build_horovod import NO_CACHE

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements"
PYTORCH = "torch==2.13.0+cpu"
"""PyTorch for CPUs. PyPI's build brings gigabytes of CUDA; no version there is named with a +."""
TORCH_INDEX = "TORCH_INDEX"
"""Environment variable: address of an index with PyTorch for CPUs, if pip's own has it not."""
TORCH_REMEDY = (
    f"{PYTORCH} was not found. PyTorch's page 'Start locally' names the index of its builds for CPUs: "
    f"set {TORCH_INDEX} to it, or name it in pip's configuration (extra-index-url or find-links)"
)
HOROVOD_REMEDY = (
    "Horovod, which TensorFlow needs for several ranks in a training, is built from source by gcc and cmake: "
    "mend what stopped that; or train with FRAMEWORK=torch or FRAMEWORK=jax, which do without it"
)
MISLEADING = (
    *("PYTHONHOME", "PYTHONPATH", "PYTHONSAFEPATH"),
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_DRY_RUN"),
)
"""Variables that would make pip see, or install to, another place than the environment."""
OWN = {"PIP_USER": "0", "PIP_REQUIRE_HASHES": "0"}
"""What pip's configuration may not ask for: AIPerf itself has no hash, and locks ask for theirs.

An index, links and constraints are a site's to choose: they are passed on.
"""
DEVICES = Path("/dev")
COMPILER_BYTES = 2 << 30
"""Memory for one compiler of Horovod, which reads TensorFlow's headers."""
CHOICES = ("run", "test", "test-horovod", "horovod", "horovod-wheel", "docs")
LOOK = "import sys; print('%d.%d' % sys.version_info[:2], getattr(sys, '_base_executable', sys.executable))"


class NotMadeError(Exception):
    """The reason why an environment could not be made, with what to type."""

    def __init__(self, reason: str, code: int = 1) -> None:
        super().__init__(reason)
        self.code = code
        """The exit code of the program that failed."""


@dataclass(frozen=True, slots=True)
class Part:
    """Packages that are installed together; `key` changes with everything that they depend on."""

    name: str
    key: str
    install: Callable[[Environment], None]
    replaces: tuple[str, ...] = ()
    """The parts of which it replaces files, or packages by other versions."""
    proof: str = ""
    """A pattern of a file below the environment that another installation would have removed."""
    optional: str = ""
    """What is printed if it cannot be installed; empty: that is an error."""


@dataclass(slots=True)
class Environment:
    """A virtual environment in `folder`, made by the program `python` (empty: any)."""

    folder: Path
    python: str = ""
    _lock: int = -1
    _parts: dict[str, str] = field(default_factory=dict)

    def make(self, parts: Sequence[Part]) -> bool:
        """Install what is missing; False if all is there. Raises NotMadeError."""
        if not self._defect() and self._has(parts):  # so that a folder that can only be read needs no lock
            return False
        with _alone(self.folder) as self._lock:
            if defect := self._defect():
                self._create(defect)
            for part in parts:
                if not self._is_there(part):
                    self._add(part)
        return True

    def pip(self, verb: str, *words: str | Path) -> None:
        """Call the environment's own pip."""
        self.call(self.program, "-P", "-m", "pip", verb, "--quiet", *words)

    def install(self, *words: str | Path) -> None:
        """Install packages, and compile them by all cores: pip does it by one."""
        self.pip("install", "--no-compile", *words)
        self.compile()

    def compile(self) -> None:
        """Compile every module, by a process for each core.

        Not by the workers of `compileall -j`: those of a parent that was killed, as a Ctrl-C does
        to it, wait for more work for ever, and hold the lock.
        """
        modules = sorted(map(str, self.folder.glob("lib/**/*.py")))
        cores = this_host().usable_cpus()
        with contextlib.ExitStack() as running:
            for share in filter(None, (modules[first::cores] for first in range(cores))):
                listed = running.enter_context(tempfile.TemporaryFile("w+"))
                listed.write("\n".join(share))
                listed.seek(0)
                # Some packages have files for other versions of Python: no use, or warnings.
                words = (self.program, "-W", "ignore", "-m", "compileall", "-qq", "-i", "-")
                running.enter_context(
                    subprocess.Popen(
                        words,
                        env=own_variables(),
                        stdin=listed,
                        stdout=subprocess.DEVNULL,
                        pass_fds=(self._lock,) if self._lock >= 0 else (),
                    )
                )

    def call(self, *command: str | Path, variables: Mapping[str, str] | None = None) -> str:
        """Run a program that may change the environment, and return its standard output."""
        # A child that outlives this process keeps the lock until it has ended.
        done = subprocess.run(
            [str(word) for word in command],
            cwd=ROOT,
            env=own_variables() | dict(variables or {}),
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            pass_fds=(self._lock,) if self._lock >= 0 else (),
        )
        if done.returncode:
            sys.stderr.write(done.stdout)
            raise NotMadeError(f"exit code {done.returncode} of: {' '.join(map(str, command))}", done.returncode)
        return done.stdout

    @property
    def program(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def _state(self) -> Path:
        return self.folder / "whole.json"

    def _defect(self) -> str:
        """Why it must be made anew; empty if it is whole. Reads what it has."""
        self._parts = {}
        if not self.folder.exists():
            return "is not there"
        try:
            state = json.loads(self._state.read_text(encoding="utf-8"))
            place, made_by, parts = state["place"], state["python"], state["parts"]
        except (OSError, ValueError, KeyError, TypeError):
            return "was left unfinished, or made by something else"
        if place != str(self.folder):
            return f"was made in {place}"
        if _look(self.program)[0] != made_by[0]:
            return f"was made by Python {made_by[0]}, which is gone"
        if self.python and _look(self.python) != tuple(made_by):
            return f"was made by {made_by[1]}"
        self._parts = parts
        return ""

    def _has(self, parts: Sequence[Part]) -> bool:
        return all(map(self._is_there, parts))

    def _is_there(self, part: Part) -> bool:
        return self._parts.get(part.name) == part.key and (not part.proof or any(self.folder.glob(part.proof)))

    def _create(self, defect: str) -> None:
        python = self.python or getattr(sys, "_base_executable", sys.executable)
        _say(f"{self.folder} {defect}: making it with {python}")
        # Removed first and by name: from then on nothing takes for whole what is being cleared.
        self._state.unlink(missing_ok=True)
        self.call(python, "-m", "venv", "--clear", self.folder)
        self._write()

    def _add(self, part: Part) -> None:
        _say(f"installing {part.name} in {self.folder}")
        before = self._changed_at()
        self._parts.pop(part.name, None)
        self._state.unlink()
        try:
            part.install(self)
        except NotMadeError:
            if not part.optional or self._changed_at() != before:
                raise
            _say(part.optional)
        else:
            self._parts[part.name] = part.key
            for name in part.replaces:
                self._parts.pop(name, None)
        finally:
            # pip downloads everything before it changes anything: without network nothing is lost.
            if part.name in self._parts or self._changed_at() == before:
                self._write()

    def _changed_at(self) -> list[int]:
        """Times of the folders that get or lose an entry with every package."""
        folders = [self.folder / "bin", *self.folder.glob("lib/python3*/site-packages")]
        return [folder.stat().st_mtime_ns for folder in folders]

    def _write(self) -> None:
        state = {"place": str(self.folder), "python": _look(self.program), "parts": self._parts}
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps(state, indent=1), encoding="utf-8")
        fresh.replace(self._state)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[int]:
    """Hold the lock next to a folder, as a descriptor; waits for another process that has it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.with_name(f"{folder.name}.lock")
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another process makes {folder}: waiting until it has ended")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:  # some file systems have no locks
            _say(f"{path} cannot be locked ({error.strerror}): do not start a second `make` here")
        # `make clean` may have removed the file while this process waited for it.
        if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
            break
        os.close(descriptor)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _say(text: str) -> None:
    print(f"environment: {text}", file=sys.stderr, flush=True)


def _look(python: str | Path) -> tuple[str, str]:
    """Version of a Python and the program that it comes from; empty if it does not run."""
    try:
        done = subprocess.run(
            [str(python), "-c", LOOK], env=own_variables(), capture_output=True, text=True, check=False
        )
    except OSError:
        return "", ""
    version, _, base = done.stdout.strip().partition(" ")
    return version, os.path.realpath(base)


def own_variables() -> dict[str, str]:
    """The variables of this process without those that mislead the programs of an environment."""
    return {name: value for name, value in os.environ.items() if name not in MISLEADING} | OWN


def key_of(*files: Path, words: Sequence[str] = ()) -> str:
    """A hash of the contents of files and of words."""
    whole = hashlib.sha256(json.dumps([*words, *(path.read_bytes().hex() for path in files)]).encode())
    return whole.hexdigest()


# ---- what AIPerf's environment is made of


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPUs to install for, and the settings of Horovod's build."""

    gpu: bool
    several: bool
    horovod: tuple[tuple[str, str], ...]


def machine(forced: str) -> Machine:
    """NVIDIA's driver is asked, unless `forced` is 0 or 1; without an answer, device files count.

    Not /proc/driver/nvidia, which containers without a GPU have from their node.
    """
    try:
        # A driver in a bad way does not answer.
        asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S607
        listed = asked.stdout
    except (OSError, subprocess.TimeoutExpired):
        listed = ""
    gpus = sum(line.startswith("GPU ") for line in listed.splitlines()) or len([*DEVICES.glob("nvidia[0-9]*")])
    gpu = forced == "1" if forced else gpus > 0
    settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith("HOROVOD_")}
    toolkit = "HOROVOD_CUDA_HOME" in settings or Path("/usr/local/cuda/bin/nvcc").exists()
    homes = (settings.get("HOROVOD_NCCL_HOME", ""), "/usr", "/usr/local/cuda")
    if gpu and toolkit and any(home and Path(home, "include", "nccl.h").exists() for home in homes):
        settings.setdefault("HOROVOD_GPU_OPERATIONS", "NCCL")
    return Machine(gpu, gpu and gpus > 1, tuple(settings.items()))


REPLACED = {
    "run": ("gpu",),
    "gpu": ("run",),
    # NNI needs an older filelock than PyTorch.
    "torch": ("pytorch", "test"),
    "torch-cpu": ("test",),
    "test": ("torch", "torch-cpu"),
}
"""Locks, and the parts that do not stay whole when one is installed."""

OTHER_BUILD = {"run": "tensorflow", "gpu": "tensorflow-cpu"}
"""Locks with TensorFlow, and the distribution of its other build, which owns the same files."""


def locked(name: str) -> Part:
    """The packages of a lock file, and what builds the distribution."""
    files = (REQUIREMENTS / f"{name}.txt", REQUIREMENTS / "build.txt")

    def install(environment: Environment) -> None:
        other = OTHER_BUILD.get(name, "").replace("-", "_")
        if other and any(environment.folder.glob(f"lib/python3*/site-packages/{other}-*.dist-info")):
            # Without the files of one, pip would still take the other for installed.
            environment.pip("uninstall", "--yes", "tensorflow", "tensorflow-cpu")
        environment.install("--require-hashes", "-r", files[0], "-r", files[1])

    return Part(name, key_of(*files), install, REPLACED.get(name, ()))


def framework_parts(framework: str, gpu: bool) -> list[Part]:
    """A framework in its build for the machine, and AIPerf itself."""
    if framework == "tensorflow":
        return [locked("gpu" if gpu else "run"), own_code()]
    if framework == "torch" and not gpu:
        return [locked("torch-cpu"), pytorch(), own_code()]
    return [locked("jax-cuda" if (framework, gpu) == ("jax", True) else framework), own_code()]


def own_code() -> Part:
    """AIPerf, in place."""
    files = (ROOT / "setup.cfg", ROOT / "pyproject.toml", ROOT / "aiperf" / "__init__.py")
    words = ("--no-deps", "--no-build-isolation", "-e", ".")
    # `pip install .` by hand would replace the code in place by a copy, which stays as it is.
    in_place = "lib/python3*/site-packages/__editable__.aiperf_hpc-*"
    return Part("aiperf", key_of(*files), lambda environment: environment.pip("install", *words), proof=in_place)


def pytorch(optional: str = "") -> Part:
    """PyTorch for CPUs, without what it needs, which the locks have."""

    def install(environment: Environment) -> None:
        index = os.environ.get(TORCH_INDEX, "")
        try:
            environment.install(
                "--no-deps", "--retries", "1", *(("--extra-index-url", index) if index else ()), PYTORCH
            )
        except NotMadeError as error:
            raise NotMadeError(f"{error}\n{TORCH_REMEDY}") from error

    return Part("pytorch", key_of(words=[PYTORCH]), install, ("torch",), optional=optional)


def horovod_wheel(environment: Environment, found: Machine) -> str:
    """The path of Horovod's wheel for the environment's TensorFlow, built if no cache has it."""
    builder = ROOT / "tools" / "build_horovod.py"
    try:
        return environment.call(environment.program, builder, str(compilers()), variables=dict(found.horovod)).strip()
    except NotMadeError as error:
        if error.code == NO_CACHE:  # which the builder has explained
            raise
        raise NotMadeError(f"{error}\n{HOROVOD_REMEDY}") from error


def compilers() -> int:
    """The most compilers at a time: one for each usable CPU, if memory has room for them."""
    host = this_host()
    return max(1, min(host.usable_cpus(), host.memory().available // COMPILER_BYTES))


def horovod(found: Machine, optional: str = "") -> Part:
    """Horovod for several ranks in a training."""
    lock = REQUIREMENTS / "horovod.txt"

    def install(environment: Environment) -> None:
        wheel = horovod_wheel(environment, found)
        environment.install("--require-hashes", "-r", lock)
        environment.install("--no-deps", "--force-reinstall", wheel)

    tensorflow = framework_parts("tensorflow", found.gpu)[0]
    words = [*map(str, found.horovod), str(shutil.which("mpicxx")), tensorflow.key]
    return Part("horovod", key_of(lock, ROOT / "tools" / "build_horovod.py", words=words), install, optional=optional)


def wanted(what: str, framework: str, found: Machine) -> list[Part]:
    """The parts that a target of the Makefile needs."""
    tensorflow = framework_parts("tensorflow", found.gpu)
    if what == "run":
        several = framework == "tensorflow" and found.several
        return [*framework_parts(framework, found.gpu), *([horovod(found)] if several else [])]
    if what == "horovod":
        return [*tensorflow, horovod(found)]
    if what == "test-horovod":
        return [*tensorflow, horovod(found, loudly("Horovod", "of several ranks in a training"))]
    if what == "test":
        return [*tensorflow, locked("test"), pytorch(f"{TORCH_REMEDY}.\n{loudly('PyTorch', 'of PyTorch')}")]
    return [*tensorflow, locked(what)]


def loudly(name: str, tests: str) -> str:
    """What cannot be missed in the output of `make test`."""
    line = "*" * 80
    return f"\n{line}\n{name} CANNOT BE INSTALLED, for the reason above: tests {tests} are skipped.\n{line}"


def main(words: Sequence[str]) -> int:
    """Make the environment; 0 done, 1 not made, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tools.environment", description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="+", choices=CHOICES)
    parser.add_argument("--python", default="", help="the program that makes the environment")
    parser.add_argument("--gpu", default="", choices=("", "0", "1"), help="1: the build for NVIDIA GPUs, 0: for CPUs")
    parser.add_argument("--framework", default="tensorflow", choices=("tensorflow", "jax", "torch"))
    arguments = parser.parse_args(words)
    found = machine(arguments.gpu)
    environment = Environment(ROOT / ".venv", shutil.which(arguments.python) or arguments.python)
    try:
        if arguments.what == ["horovod-wheel"]:  # compiles while another process installs, and changes nothing here
            print(horovod_wheel(environment, found))
            return 0
        parts = [part for what in arguments.what for part in wanted(what, arguments.framework, found)]
        if environment.make(list({part.name: part for part in parts}.values())):
            _say("done; activate it in a shell with: . .venv/bin/activate")
    except (NotMadeError, OSError) as error:
        _say(f"{error}\nenvironment: not made; start it again once that is mended")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; start it again")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
