"""README and docs agree with the program."""

import ast
import re
from pathlib import Path

import pytest

from aiperf.cli.packages import PACKAGES
from tests.support.documentation.commands import documents
from tests.support.folders import ROOT
from tools.make_docs import stale

QUESTION = re.compile(r"(What|How|Where|Who|Whether|Why|Which|Nothing)\b")


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("git", ["exit 128", ""], ids=["refuses", "is missing"])
def test_documents_are_found_without_a_repository(git: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = documents()
    if git:
        (tmp_path / "git").write_text(f"#!/bin/sh\n{git}\n")
        (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert {*documents()} >= {*known} > set()


def test_the_generated_references_are_up_to_date() -> None:
    assert [path.name for path in stale()] == [], "run `make docs`"


def test_every_setting_and_every_module_is_described() -> None:
    text = "".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    empty = [line for line in text.splitlines() if line.startswith("|") and line.endswith("|  |")]
    assert empty == []


@pytest.mark.parametrize("room", PACKAGES)
def test_docstrings_open_with_a_noun_phrase_or_an_imperative(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{text.lineno}: {text.value.strip().splitlines()[0]}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr) and isinstance(text := statement.value, ast.Constant)
        if isinstance(text.value, str) and QUESTION.match(text.value.strip())
    ]
    assert wrong == [], "CONTRIBUTING.md, Voice"


def test_every_path_of_the_architecture_page_exists() -> None:
    named = set(re.findall(r"`([a-z_]+/[\w/.]*)`", (ROOT / "docs" / "architecture.md").read_text()))
    assert named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_every_suite_of_the_architecture_page_exists() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", (ROOT / "docs" / "architecture.md").read_text()))
    assert named
    assert sorted(name for name in named if not [*(ROOT / "tests").rglob(name)]) == []


SAY_WHAT_RAN_ON_GPUS = ("README.md", "docs/faq.md", "docs/frameworks.md", "docs/tutorial.md", "docs/performance.md")


def test_all_documents_say_the_same_about_gpus() -> None:
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in SAY_WHAT_RAN_ON_GPUS}
    measured = texts["docs/performance.md"].partition("\n## GPUs\n")[2].partition("\n## ")[0]
    devices = set(re.findall(r"On an? NVIDIA (\w+)", measured))
    assert devices, "as the section with the figures begins"
    for name, text in texts.items():
        assert {device for device in devices if device in text} == devices, name
        assert "performance.md#gpus" in text or "## GPUs" in text, f"{name} leads to what was measured"
    for document in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = " ".join(document.read_text(encoding="utf-8").split())
        assert not re.search(r"(nothing|never) (has been|was|been) run on (a GPU|GPUs)", text, re.IGNORECASE), document
