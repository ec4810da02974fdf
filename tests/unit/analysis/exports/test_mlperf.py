"""What is written for MLPerf, as MLCommons' own parser and checkers read it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from mlperf_logging.compliance_checker.mlp_parser import parse_file
from mlperf_logging.mllog import constants
from mlperf_logging.system_desc_checker.system_desc_checker import check_system_desc

from aiperf.config.sections.run import Availability
from analysis.output.artifacts import mllog_lines
from analysis.output.systems import STATUSES, mlperf_system
from analysis.reading.nodes import NodeFacts
from analysis.reading.run_data import RunData, read_run
from analysis.report.build import build_report
from tests.support.hand_made import HandMadeRun

RULESETS = ("5.1.0", "6.0.0")
OWN_KEYS = {"score_ops", "regulated_score_ops", "error"}


def recorded(root: Path, availability: str | None = None) -> RunData:
    settings = {} if availability is None else {"run.availability": availability}
    run = (
        HandMadeRun(root, {"run.name": "Cluster Ä", "training.max_epochs": 4, **settings})
        .at(0)
        .release(100, replicas=2)
    )
    run.at(1).start_trial(1).start_trial(2, replica=1).at(60).epoch(1, 1, correct=324).end_trial(1)
    run.at(70).epoch(2, 1, replica=1).fail_trial(2, replica=1).support(100)
    return read_run(run.end(100).paths)


@pytest.mark.parametrize("ruleset", RULESETS)
def test_the_parser_reads_every_line_of_the_log(ruleset: str, tmp_path: Path) -> None:
    data = recorded(tmp_path)
    lines = [*mllog_lines(data, build_report(data))]
    file = tmp_path / "mllog.txt"
    file.write_text("".join(f"{line}\n" for line in lines))
    found, failed = parse_file(str(file), ruleset)
    assert failed == []
    assert [line.full_string for line in found] == lines
    known = {value for name, value in vars(constants).items() if name.isupper() and isinstance(value, str)}
    assert {line.key for line in found} - known == OWN_KEYS
    accuracies = [line.value["value"] for line in found if line.key == constants.EVAL_ACCURACY]
    assert accuracies == [324 / 360, 300 / 360]


@pytest.mark.parametrize("ruleset", RULESETS)
@pytest.mark.parametrize("availability", [None, *get_args(Availability)])
def test_the_checker_of_system_descriptions_accepts_every_availability(
    availability: str | None, ruleset: str, tmp_path: Path
) -> None:
    description = mlperf_system(build_report(recorded(tmp_path / "run", availability)))
    file = tmp_path / "systems.json"
    file.write_text(json.dumps(description))
    valid, name, before, _ = check_system_desc(str(file), "training", ruleset)
    assert (valid, name) == (True, "Cluster Ä")
    assert before == ",Cluster Ä,,,NVIDIA H200,1,,"
    assert description["status"] == STATUSES[availability or "research"]


@pytest.mark.parametrize("field", ["status", "host_memory_configuration"])
def test_the_checker_is_not_blind(field: str, tmp_path: Path) -> None:
    description = mlperf_system(build_report(recorded(tmp_path / "run")))
    file = tmp_path / "systems.json"
    file.write_text(json.dumps({**description, field: ""} if field == "status" else without(description, field)))
    assert not check_system_desc(str(file), "training", RULESETS[0])[0]


def without(description: dict[str, object], field: str) -> dict[str, object]:
    return {name: value for name, value in description.items() if name != field}


def test_a_system_without_facts_is_described_too(tmp_path: Path) -> None:
    data = replace(recorded(tmp_path / "run"), system={"0": NodeFacts()})
    file = tmp_path / "systems.json"
    file.write_text(json.dumps(mlperf_system(build_report(data))))
    assert check_system_desc(str(file), "training", RULESETS[0])[0]
