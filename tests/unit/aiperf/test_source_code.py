"""The hash of the source and the state of its checkout."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aiperf
from aiperf.run_directory.manifest import Manifest
from aiperf.source_code import PACKAGES, source_hash
from tests.support.needs import need

ROOT = Path(aiperf.__file__).parents[1]

ASK = """
import json
from aiperf.source_code import git_state, source_hash
print(json.dumps([*git_state(), source_hash()]))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The source of all packages in a folder of its own."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / "copy" / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "copy"


def ask(folder: Path) -> tuple[str | None, bool | None, str]:
    """Revision, dirtiness and hash that a copy of the program gives of itself."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", ASK], env=environment, capture_output=True, text=True, check=True
    )
    revision, dirty, digest = json.loads(done.stdout)
    return revision, dirty, digest


def git(folder: Path, *words: str) -> str:
    need("git")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *words],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_the_hash_is_of_every_python_file_by_hand() -> None:
    digest = hashlib.sha256()
    files = {str(f.relative_to(ROOT)): f for package in PACKAGES for f in (ROOT / package).rglob("*.py")}
    assert len(files) > 200
    for name, file in sorted(files.items()):
        content = file.read_bytes()
        digest.update(name.encode() + b"\0" + str(len(content)).encode() + b"\0" + content)
    assert source_hash() == digest.hexdigest()


def test_a_copy_has_the_same_hash_until_a_byte_changes(copy: Path) -> None:
    assert ask(copy) == (None, None, source_hash()), "outside git"
    (copy / "notes.py").write_text("")
    (copy / "analysis" / "notes.txt").write_text("")
    assert ask(copy)[2] == source_hash()
    file = copy / "replica" / "agent" / "agent.py"
    file.write_text(file.read_text() + "#")
    changed = ask(copy)[2]
    assert changed != source_hash()
    file.rename(file.with_name("agents.py"))
    assert ask(copy)[2] not in (changed, source_hash())


def test_a_changed_or_new_file_makes_the_checkout_dirty(copy: Path) -> None:
    git(copy, "init", "-q")
    git(copy, "add", "-A")
    git(copy, "commit", "-q", "-m", "all")
    revision = git(copy, "rev-parse", "HEAD")
    (copy / "runs").mkdir()
    (copy / "runs" / "run.json").write_text("{}")
    assert ask(copy)[:2] == (revision, False), "the packages alone count"
    (copy / "workloads" / "new.py").write_text("")
    assert ask(copy)[:2] == (revision, True)
    (copy / "workloads" / "new.py").unlink()
    (copy / "aiperf" / "seeds.py").write_text("")
    assert ask(copy)[:2] == (revision, True)


def test_an_installation_inside_another_repository_has_no_revision(copy: Path) -> None:
    git(copy.parent, "init", "-q")
    git(copy.parent, "commit", "-q", "--allow-empty", "-m", "another program")
    assert ask(copy)[:2] == (None, None)


def test_manifests_of_earlier_versions_are_read() -> None:
    manifest = Manifest.model_validate_json('{"git_revision": null, "config": {}}', strict=False)
    assert (manifest.git_dirty, manifest.source_hash) == (None, None)
