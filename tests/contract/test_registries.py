"""The suite of every seam runs over its registry, so that new implementations are tested."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from aiperf.config.settings import RunConfig
from aiperf.registry import Registry
from primary.launchers import LAUNCHERS
from primary.managers import MANAGERS
from replica.search.strategies import STRATEGIES
from replica.search.tuners import TUNERS
from replica.trainer.frameworks import FRAMEWORKS
from replica.trainer.programs import TRAINERS
from replica.trainer.starters import STARTERS
from tests.support.folders import ROOT

TOY = "toy-implementation"

SEAMS = {
    "analysis.output.trackers:TRACKERS": "tests/integration/reports/test_trackers.py",
    "primary.allocations:ALLOCATIONS": "tests/contract/primary/test_allocations.py",
    "primary.launchers:LAUNCHERS": "tests/contract/primary/test_launchers.py",
    "primary.doctor.checks:CHECKS": "tests/unit/primary/test_doctor_checks.py",
    "primary.managers:MANAGERS": "tests/contract/primary/test_managers.py",
    "replica.measure.micro.stacks:STACKS": "tests/contract/test_micro_stacks.py",
    "replica.measure.profile.networks:NETWORK_STEPS": "tests/contract/trainer/test_network_steps.py",
    "replica.search.strategies:STRATEGIES": "tests/contract/search/test_search_strategies.py",
    "replica.search.tuners:TUNERS": "tests/contract/search/test_tuners.py",
    "replica.trainer.programs:TRAINERS": "tests/contract/trainer/test_trainers.py",
    "replica.trainer.frameworks:FRAMEWORKS": "tests/contract/trainer/frameworks/test_frameworks.py",
    "replica.trainer.starters:STARTERS": "tests/contract/trainer/test_rank_starters.py",
    "replica.trainer.tasks:TASKS": "tests/contract/trainer/frameworks/test_tasks.py",
    "replica.trainer.data:SOURCES": "tests/contract/trainer/test_data_sources.py",
    "workloads.science:SCIENCE": "tests/contract/test_science_workloads.py",
}
"""Every registry that has a suite (module and name), and the suite that runs over it."""

PLUGIN = f"""
import importlib, json, os

for path in json.loads(os.environ["TOY_REGISTRIES"]):
    module, _, name = path.partition(":")
    getattr(importlib.import_module(module), name).add({TOY!r}, "no.such.module:Toy")
"""


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The tests of all suites, in a process with a toy implementation of every seam."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "toy_plugin.py").write_text(PLUGIN)
    search_path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = {"PYTHONPATH": search_path, "TOY_REGISTRIES": json.dumps(list(SEAMS)), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "toy_plugin", "-p", "no:cacheprovider", "--collect-only", "-q"]
    result = subprocess.run(
        [*command, *dict.fromkeys(SEAMS.values())],
        cwd=ROOT,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("registry", SEAMS)
def test_a_registered_implementation_is_collected_by_the_suite_of_its_seam(registry: str, collected: list[str]) -> None:
    suite = SEAMS[registry]
    toys = [line for line in collected if line.startswith(f"{suite}::") and TOY in line.partition("[")[2]]
    assert toys, f"{suite} does not run over {registry}"


CHOICES: dict[str, Registry[Any]] = {
    "run.launcher": LAUNCHERS,
    "run.manager": MANAGERS,
    "search.strategy": STRATEGIES,
    "search.hpo": TUNERS,
    "training.trainer": TRAINERS,
    "training.framework": FRAMEWORKS,
    "replica.rank_starter": STARTERS,
}
"""Settings that choose an implementation by name, and the registry that has it."""

NOT_IMPLEMENTATIONS = {"auto", "none"}


@pytest.mark.parametrize("key", CHOICES)
def test_a_setting_offers_what_the_registry_has(key: str) -> None:
    section, _, name = key.partition(".")
    schema = getattr(RunConfig(), section).model_json_schema()["properties"][name]
    assert set(schema["enum"]) - NOT_IMPLEMENTATIONS == set(CHOICES[key]) - NOT_IMPLEMENTATIONS
