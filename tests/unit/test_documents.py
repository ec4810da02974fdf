"""What README and docs promise is what the program has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiperf.cli.verbs import VERBS
from aiperf.config.settings import RunConfig

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_use_verbs_that_exist(document: Path) -> None:
    used = set(re.findall(r"^\s*(?:\.venv/bin/)?aiperf ([a-z]+)", document.read_text(), re.MULTILINE))
    assert used <= set(VERBS)


def test_every_key_of_the_configuration_is_documented() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for section, field in RunConfig.model_fields.items():
        assert isinstance(field.annotation, type)
        keys = field.annotation.model_fields
        assert [key for key in keys if f"`{section}.{key}`" not in text] == []
