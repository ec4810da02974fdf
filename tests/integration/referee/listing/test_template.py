"""The template repository of a list: its workflows, and the check of its submissions."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from aiperf.run_directory.paths import RunPaths
from referee.listing.submissions import find_submissions, read_settings
from tests.integration.referee.listing.conftest import make_key, pack
from tests.support.folders import ROOT
from tests.support.needs import need

TEMPLATE = ROOT / "examples" / "list"


def git(repository: Path, *words: str) -> None:
    need("git")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=")
    subprocess.run(["git", "-C", str(repository), *identity, *words], check=True, capture_output=True)


def check(repository: Path) -> tuple[int, str]:
    git(repository, "add", "-A")
    git(repository, "commit", "--allow-empty", "-m", "submission")
    program = [sys.executable, str(repository / "check_submissions.py"), "main"]
    done = subprocess.run(program, cwd=repository, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def listed(finished: RunPaths, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list with one archive on its main branch, on a branch for submissions; a key and a run."""
    folder = tmp_path_factory.mktemp("template")
    repository = shutil.copytree(TEMPLATE, folder / "list")
    git(folder, "init", "-q", "-b", "main", str(repository))
    key = make_key(folder, "ada")
    shutil.copytree(finished.root, folder / "run")
    pack(RunPaths(folder / "run"), repository / "submissions" / "ada" / "old.tar.gz", key)
    shutil.copy(folder / "signers", repository / "submissions" / "signers")
    git(repository, "add", "-A")
    git(repository, "commit", "-m", "list")
    git(repository, "checkout", "-q", "-b", "submission")
    return folder


@pytest.fixture
def folder(listed: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(listed, tmp_path / "template")


def describe(archive: Path) -> Path:
    """The description of the archive's system, with what only the submitter knows."""
    known = json.loads(subprocess.check_output(["tar", "-xOzf", archive, f"{archive.name[:-7]}/systems.json"]))
    file = archive.with_name(f"{archive.name[:-7]}.system.json")
    file.write_text(json.dumps({**known, "submitter": "Ada", "cooling": "air", "host_networking": "none"}))
    return file


def test_a_good_submission_passes_and_one_without_a_description_does_not(folder: Path) -> None:
    repository = folder / "list"
    archive = repository / "submissions" / "ada" / "new.tar.gz"
    pack(RunPaths(folder / "run"), archive, folder / "ada")
    code, said = check(repository)
    assert (code, "new.system.json" in said, "signature" in said) == (1, True, False), said
    file = describe(archive)
    code, said = check(repository)
    assert code == 0, said
    document = json.loads(file.read_text())
    del document["framework"]
    file.write_text(json.dumps(document))
    code, said = check(repository)
    assert (code, "is refused by MLCommons' checker" in said) == (1, True), said


def test_a_changed_archive_and_an_unknown_key_are_refused_and_a_move_is_not(folder: Path) -> None:
    repository = folder / "list"
    own = repository / "submissions"
    (own / "2026-06").mkdir()
    shutil.move(own / "ada" / "old.tar.gz", own / "2026-06" / "old.tar.gz")
    describe(own / "2026-06" / "old.tar.gz")
    code, said = check(repository)
    assert (code, "stays as it is" in said) == (0, False), said
    pack(RunPaths(folder / "run"), own / "2026-06" / "old.tar.gz", make_key(folder, "eve"))
    code, said = check(repository)
    assert code == 1
    assert "old.tar.gz: a listed archive stays as it is" in said
    assert "signature: the key of the signature is not one of" in said


def test_the_template_is_an_empty_list() -> None:
    assert find_submissions(TEMPLATE / "submissions") == ([], [])
    assert read_settings(TEMPLATE / "submissions").title == "AIPerf list"


@pytest.mark.parametrize("name", ["submission", "publish"])
def test_a_workflow_can_be_read_and_asks_for_no_more_than_it_needs(name: str) -> None:
    workflow = yaml.safe_load((TEMPLATE / ".github" / "workflows" / f"{name}.yml").read_text())
    needed = {"contents": "read", **({"pages": "write", "id-token": "write"} if name == "publish" else {})}
    assert workflow["permissions"] == needed
    # YAML 1.1 reads the key `on` as true. A fork's pull request must not run with secrets.
    assert "pull_request_target" not in workflow[True]


# The workflows, step by step.

EXPRESSIONS = {"vars.AIPERF": "aiperf-hpc @ git+https://code.example/aiperf@v1", "github.base_ref": "main"}
PIP = '#!/bin/sh\necho "$@" >> "$RUNNER_TEMP/pip"\n'


def run_workflow(name: str, checkout: Path, temporary: Path) -> tuple[int, str]:
    """Run the steps of a workflow in a checkout, in their shells; `pip` only notes what it gets."""
    temporary.mkdir()
    (temporary / "bin").mkdir()
    (temporary / "bin" / "pip").write_text(PIP)
    (temporary / "bin" / "pip").chmod(0o755)
    path = f"{temporary / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    runner = {"PATH": path, "RUNNER_TEMP": str(temporary), "GITHUB_STEP_SUMMARY": str(temporary / "summary")}
    workflow = yaml.safe_load((checkout / ".github" / "workflows" / f"{name}.yml").read_text())
    (job,) = workflow["jobs"].values()
    said = ""
    for step in (step for step in job["steps"] if "run" in step):
        own = {key: EXPRESSIONS[value[3:-2].strip()] for key, value in step.get("env", {}).items()}
        words = ["bash", "--noprofile", "--norc", *(["-eo", "pipefail"] if "shell" in step else ["-e"]), "-c"]
        done = subprocess.run(
            [*words, step["run"]],
            cwd=checkout,
            env={**os.environ, **runner, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        said += done.stdout + done.stderr
        if done.returncode:
            return done.returncode, said
    assert EXPRESSIONS["vars.AIPERF"] in (temporary / "pip").read_text()
    return 0, said


def checkout_of(repository: Path, branch: str, target: Path) -> Path:
    """A clone of what is committed now, as the forge gives it to a workflow."""
    git(repository, "add", "-A")
    git(repository, "commit", "--allow-empty", "-m", "submission")
    git(repository.parent, "clone", "-q", "-b", branch, str(repository), str(target))
    return target


def test_the_workflows_accept_and_publish_a_good_submission_and_refuse_a_forged_one(folder: Path) -> None:
    repository = folder / "list"
    archive = repository / "submissions" / "ada" / "new.tar.gz"
    pack(RunPaths(folder / "run"), archive, folder / "ada")
    describe(archive)
    good = checkout_of(repository, "submission", folder / "good")
    code, said = run_workflow("submission", good, folder / "temporary")
    assert (code, "1 archives checked; 0 problems" in said) == (0, True), said
    assert "0 problems" in (folder / "temporary" / "summary").read_text()

    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "submission")
    main = checkout_of(repository, "main", folder / "main")
    code, said = run_workflow("publish", main, folder / "publishing")
    assert code == 0, said
    origins = [row["origin"] for row in json.loads((main / "site/editions/next/score.json").read_text())["rows"]]
    assert origins == ["ada/new.tar.gz"]

    forged = RunPaths(folder / "run")
    (file,) = forged.history.glob("replica-0000-1.jsonl")
    file.write_bytes(re.sub(rb'"correct":\d+', b'"correct":359', file.read_bytes(), count=1))
    # A submission cannot change its own check.
    git(repository, "checkout", "-q", "-b", "forgery")
    pack(forged, repository / "submissions" / "ada" / "forged.tar.gz", folder / "ada")
    describe(repository / "submissions" / "ada" / "forged.tar.gz")
    (repository / "check_submissions.py").write_text("print('0 archives checked; 0 problems')\n")
    code, said = run_workflow("submission", checkout_of(repository, "forgery", folder / "bad"), folder / "refusing")
    assert (code, "forged.tar.gz: invalid: " in said) == (1, True), said
