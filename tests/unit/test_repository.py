"""The repository holds what it should."""

import subprocess

import pytest

from tests.support.folders import ROOT
from tests.support.needs import need_repository


@pytest.fixture(autouse=True)
def repository() -> None:
    need_repository()


def git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_no_ignored_file_is_tracked() -> None:
    assert git("ls-files", "--ignored", "--cached", "--exclude-standard") == []


def test_no_module_is_ignored() -> None:
    ignored = git("ls-files", "--ignored", "--others", "--exclude-standard", "*.py")
    rooms = {path.split("/")[0] for path in git("ls-files", "*.py")}
    assert [path for path in ignored if path.split("/")[0] in rooms] == []


def test_no_host_of_a_package_registry_is_named() -> None:
    """A mirror is as good: the configuration of pip names it, or a variable of the Makefile."""
    hosts = (
        r"pypi\.(org|python\.org)|pythonhosted\.org|download\.pytorch\.org|anaconda\.(org|com)|npmjs\.(org|com)"
        r"|nvcr\.io|ghcr\.io|quay\.io|docker\.(io|com)|deb\.debian\.org|archive\.ubuntu\.com|astral\.sh"
        r"|developer\.download\.nvidia"
    )
    named = subprocess.run(
        ["git", "grep", "-nIE", hosts, "--", ":!tests/unit/test_repository.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert named.stdout.splitlines() == []
