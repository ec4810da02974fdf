"""Install AIPerf as users do, and use it: `python -m tools.check_installation FOLDER WAY...`.

Builds the source distribution and from it the wheel, installs the wheel in an environment of its
own, and does a short run, report, verify, check and rank in a folder that has none of the sources.
Ways: `newest` packages that the bounds allow, by pip; the `oldest` ones, by uv; `offline`, the
locked ones from a folder, by the commands of docs/howto/airgap.md, cut off from the network if
`unshare` can do that. Takes 10 GB in FOLDER, and about five minutes for each way.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tools.environment import REQUIREMENTS, ROOT, Environment, NotMadeError, Part, key_of, locked, own_variables

NOT_SOURCES = shutil.ignore_patterns("__pycache__", ".git", ".venv*", "*.egg-info", ".*_cache", ".hypothesis")
MADE = frozenset({"build", "dist", "runs"})
RUN = "runs/first"
USE = (
    ("--version",),
    ("doctor", "--preset", "quick", "--replicas", "1", "--no-probe"),
    ("run", "--preset", "quick", "--replicas", "1", "--duration", "2m", "--output", RUN),
    ("status", RUN),
    ("report", RUN, "--format", "json"),
    ("verify", RUN),
    ("check", RUN),
    ("rank", RUN),
    ("predict", "--machine", "h100-8x8", "--replicas", "8", "--duration", "1h", "--seeds", "1"),
)
"""What a newcomer does, without any file of the sources."""
FOR_UV = {"PIP_CERT": "SSL_CERT_FILE", "PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX"}
"""pip's variables with what a site has chosen, and uv's for the same."""


def copy_sources(copy: Path) -> Path:
    """A copy of the sources, as an archive of them is unpacked."""
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(ROOT, copy, symlinks=True, ignore=_not_sources))


def build(folder: Path) -> tuple[Path, Path]:
    """A copy of the sources, and the wheel that is built from the source distribution of them."""
    made = folder / "dist"
    shutil.rmtree(made, ignore_errors=True)
    copy = copy_sources(folder / "sources")
    environment = Environment(folder / "building")
    environment.make([locked("build")])
    words = f"from setuptools import build_meta; build_meta.build_sdist({str(made)!r})"
    subprocess.run([environment.program, "-c", words], cwd=copy, stdout=subprocess.DEVNULL, check=True)
    (source,) = made.glob("*.tar.gz")
    environment.pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", made, source)
    (wheel,) = made.glob("*.whl")
    print(f"{source.name}: {source.stat().st_size >> 10} KiB; {wheel.name}: {wheel.stat().st_size >> 10} KiB")
    return copy, wheel


def _not_sources(folder: str, names: list[str]) -> set[str]:
    """What a copy of the sources does not have: results, caches, environments."""
    return set(NOT_SOURCES(folder, names)) | (MADE if Path(folder) == ROOT else set())


def requirements(wheel: Path) -> list[str]:
    """The wheel, and the CPU build of TensorFlow in the bounds of the extra."""
    lines = (REQUIREMENTS / "run.in").read_text(encoding="utf-8").splitlines()
    return [str(wheel), *(line for line in lines if line and line[0] not in "#-")]


def newest(folder: Path, _: Path, wheel: Path) -> Path:
    """The environment that pip makes by itself."""
    environment = Environment(folder / "newest")
    environment.make([Part("newest", key_of(wheel), lambda made: made.install("--upgrade", *requirements(wheel)))])
    return environment.folder


def oldest(folder: Path, _: Path, wheel: Path) -> Path:
    """The environment with the oldest version of each direct dependency that has a wheel."""
    tool = Environment(folder / "uv")
    tool.make([Part("uv", "uv", lambda made: made.pip("install", "uv"))])
    options = ("--upgrade", "--resolution", "lowest-direct", "--only-binary", ":all:")
    site = {name: os.environ[of_pip] for of_pip, name in FOR_UV.items() if of_pip in os.environ}

    def install(made: Environment) -> None:
        command = (tool.folder / "bin" / "uv", "pip", "install", "--quiet", "--python", made.program, *options)
        # What the wheel asks for would not be direct: it is named, and the wheel comes after it.
        locks = ("-r", REQUIREMENTS / "base.in", "-r", REQUIREMENTS / "run.in")
        made.call(*command, *locks, variables=site)
        made.pip("install", "--no-deps", wheel)

    environment = Environment(folder / "oldest")
    environment.make([Part("oldest", key_of(wheel), install)])
    return environment.folder


def offline(folder: Path, copy: Path, _: Path) -> Path:
    """The environment that `make env` makes in a copy of the sources, from a folder of packages."""
    locks = ("-r", REQUIREMENTS / "run.txt", "-r", REQUIREMENTS / "build.txt")
    Environment(folder / "building").pip("download", "--require-hashes", "--dest", copy / "packages", *locks)
    cut = ["unshare", "--net", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*cut, "true"], check=False).returncode:
        print("offline: this machine cannot cut a process off from the network: pip alone is kept from it")
        cut = []
    variables = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "packages", "PIP_CONFIG_FILE": os.devnull}
    subprocess.run([*cut, "make", "env", "GPU=0", f"PYTHON={sys.executable}"], cwd=copy, env=variables, check=True)
    return copy / ".venv"


WAYS: dict[str, Callable[[Path, Path, Path], Path]] = {"newest": newest, "oldest": oldest, "offline": offline}


def use(environment: Path, place: Path) -> list[str]:
    """What does not work, of what a newcomer does."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    failed = []
    versions = subprocess.run(
        [environment / "bin" / "python", "-m", "pip", "list", "--format", "freeze"],
        env=own_variables(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (place / "versions.txt").write_text(versions, encoding="utf-8")
    for number, words in enumerate(USE):
        done = subprocess.run(
            [environment / "bin" / "aiperf", *words],
            cwd=place,
            env=own_variables(),
            capture_output=True,
            text=True,
            check=False,
        )
        (place / f"{number}-{words[0].strip('-')}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        wrong = done.returncode or "Traceback" in done.stderr or "Warning" in done.stderr
        print(f"  {'FAILED' if wrong else 'ok'}: aiperf {' '.join(words)}", flush=True)
        if wrong:
            failed.append(f"aiperf {' '.join(words)}: exit code {done.returncode}: {done.stderr[-500:]}")
    return failed


def main(words: list[str]) -> int:
    """Try every way; 1 if something does not work."""
    parser = argparse.ArgumentParser(prog="python -m tools.check_installation")
    parser.add_argument("folder", type=lambda text: Path(text).resolve())
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)} (default: all)")
    arguments = parser.parse_args(words)
    unknown = set(arguments.ways) - set(WAYS)
    if unknown or arguments.folder.is_relative_to(ROOT):
        parser.error(f"unknown: {sorted(unknown)}" if unknown else "name a folder outside of the sources")
    copy, wheel = build(arguments.folder)
    failed = []
    for way in arguments.ways or WAYS:
        print(f"{way}:", flush=True)
        try:
            failed += use(WAYS[way](arguments.folder, copy, wheel), arguments.folder / f"used-{way}")
        except (NotMadeError, subprocess.CalledProcessError) as error:
            failed.append(f"{way}: {error}")
    print("\n".join(failed) or "all of it works")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
