"""Check what a branch adds to the submissions of a list; the exit code is 1 if anything is wrong.

python check_submissions.py BASE

BASE is the commit to compare with. Each new archive goes through `aiperf check` with its signature
and all plans of its search; each needs a description, which MLCommons' checker looks at if it is
installed. Listed archives must stay as they are. Prints a list in Markdown.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("submissions")
SIGNERS = FOLDER / "signers"
ARCHIVES = (".tar.gz", ".tgz")
DESCRIPTION = ".system.json"
HEADS = ".heads"

BY_THE_SUBMITTER = ("submitter", "system_name", "status", "cooling", "host_networking")
"""Fields of a description that may not be empty."""

USAGE, RULESET = "training", "5.1.0"
"""The rules that MLCommons' checker goes by."""


def changed(base: str, kinds: str) -> list[Path]:
    """Files of the submissions that were changed in one of the ways of git diff --diff-filter."""
    words = ["git", "diff", "--name-only", "-z", "--no-renames", f"--diff-filter={kinds}", f"{base}...HEAD", "--"]
    done = subprocess.run([*words, str(FOLDER)], capture_output=True, text=True, check=True)
    return [Path(name) for name in done.stdout.split("\0") if name]


def contents(base: str) -> set[str]:
    """Hashes of the files that are there now: a moved archive is the same file elsewhere."""
    done = subprocess.run(["git", "ls-tree", "-r", "-z", base, str(FOLDER)], capture_output=True, text=True, check=True)
    return {entry.split("\t")[0].split()[2] for entry in done.stdout.split("\0") if entry}


def of_archive(archive: Path) -> Iterator[str]:
    """What is wrong with an archive."""
    words = ["aiperf", "check", str(archive), "--signers", str(SIGNERS), "--replay", "all", "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        yield f"cannot be read: {done.stderr.strip()[:500]}"
        return
    if not found["signature"]["valid"]:
        yield f"signature: {found['signature']['reason']}"
    if found["verdict"] in ("invalid", "running"):
        reasons = [*found["differences"], *(rule["rule"] for rule in found["rules"] if not rule["passed"])]
        yield f"{found['verdict']}: {'; '.join(reasons)[:500]}"


def of_description(file: Path) -> Iterator[str]:
    """What is wrong with the description of a system."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        empty = [name for name in BY_THE_SUBMITTER if not str(document.get(name, "")).strip()]
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        yield f"{file.name} is no description: {error}"
        return
    if empty:
        yield f"{file.name} leaves out {', '.join(empty)}"
    try:
        from mlperf_logging.system_desc_checker.system_desc_checker import check_system_desc
    except ImportError:
        return
    if not check_system_desc(str(file), USAGE, RULESET)[0]:
        yield f"{file.name} is refused by MLCommons' checker"


def problems(base: str) -> Iterator[str]:
    """Everything that is wrong with a branch."""
    before, now = contents(base), contents("HEAD")
    for file in changed(base, "MD") if before - now else ():
        if file.name.endswith(ARCHIVES) and not moved(file, base, now):
            yield f"{file}: a listed archive stays as it is; withdraw it in list.toml"
    for file in changed(base, "AM"):
        if file.is_symlink():
            yield f"{file}: links are not followed"
        elif file.name.endswith(ARCHIVES):
            stem = next(file.name.removesuffix(end) for end in ARCHIVES if file.name.endswith(end))
            own = [*of_archive(file), *of_description(file.with_name(f"{stem}{DESCRIPTION}"))]
            yield from (f"{file}: {problem}" for problem in own)


def moved(file: Path, base: str, now: set[str]) -> bool:
    """True if the content that a file had is still there, elsewhere."""
    done = subprocess.run(["git", "rev-parse", f"{base}:{file}"], capture_output=True, text=True, check=True)
    return done.stdout.strip() in now


def main() -> int:
    """Check, and print what was found."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    base = sys.argv[1]
    checked = [file for file in changed(base, "AM") if file.name.endswith(ARCHIVES)]
    found = list(problems(base))
    print(f"{len(checked)} archives checked; {len(found)} problems")
    for problem in found:
        print(f"- {problem}")
    for file in changed(base, "AMD"):
        if file.name.endswith(HEADS):
            print(f"- note: {file} changes; the list alone writes down when heads arrived")
    if SIGNERS in changed(base, "AM"):
        print(f"- note: {SIGNERS} changes; confirm on a second way to whom each new key belongs")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
