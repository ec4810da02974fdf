"""A process for each framework: Keras has one backend in a process.

This process trains on TensorFlow. Tests whose parameter `trains_on` is another framework run
together in one further process for each framework; here they pass or fail as they did there.
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from aiperf.config.frameworks import DEFAULT_FRAMEWORK
from tests.support.folders import ROOT
from tests.support.trainings.installed import need_frameworks

OWN = "AIPERF_TEST_FRAMEWORK"
"""Variable with the framework of this process."""


def framework_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("trains_on")


def key_of(item: pytest.Item) -> tuple[str, str]:
    """Class name and name of a test, as JUnit's format has them."""
    return item.nodeid.partition("::")[0].removesuffix(".py").replace("/", "."), item.name


class Elsewhere:
    """Outcomes of tests in processes of other frameworks: None, or the text of the failure."""

    def __init__(self, session: pytest.Session, folder: Path) -> None:
        self._items = session.items
        self._folder = folder
        self._outcomes: dict[str, dict[tuple[str, str], str | None]] = {}

    def outcome(self, item: pytest.Item, framework: str) -> str | None:
        if framework not in self._outcomes:
            self._outcomes[framework] = self._run(framework)
        return self._outcomes[framework].get(key_of(item), "it did not run: its process ended early")

    def _run(self, framework: str) -> dict[tuple[str, str], str | None]:
        tests = [item.nodeid for item in self._items if framework_of(item) == framework]
        report = self._folder / f"{framework}.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            f"--basetemp={self._folder / framework}",
        ]
        own = {OWN: framework, "KERAS_BACKEND": framework, "PYTEST_ADDOPTS": ""}
        environment = {**os.environ, **own}
        done = subprocess.run(
            [*command, *tests], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if not report.exists():
            pytest.fail(f"{framework}: {done.stdout}{done.stderr}", pytrace=False)
        outcomes: dict[tuple[str, str], str | None] = {}
        for case in ElementTree.parse(report).iter("testcase"):
            failures = [part.text or "" for kind in ("failure", "error") for part in case.iter(kind)]
            outcomes[case.get("classname", ""), case.get("name", "")] = "\n".join(failures) if failures else None
        return outcomes


@pytest.fixture(scope="session")
def elsewhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    return Elsewhere(request.session, tmp_path_factory.mktemp("frameworks"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = (None, os.environ.get(OWN, DEFAULT_FRAMEWORK))
    for item in items:
        if isinstance(item, pytest.Function) and framework_of(item) not in here:
            item.fixturenames.append("elsewhere")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    framework = framework_of(pyfuncitem)
    if framework is None or framework == os.environ.get(OWN, DEFAULT_FRAMEWORK):
        return None
    need_frameworks(framework)
    elsewhere = pyfuncitem.funcargs["elsewhere"]
    assert isinstance(elsewhere, Elsewhere)
    failure = elsewhere.outcome(pyfuncitem, framework)
    if failure is not None:
        pytest.fail(f"on {framework}:\n{failure}", pytrace=False)
    return True
