"""The description of a system: declared and measured, as MLCommons' checker and readers see it."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from mlperf_logging.system_desc_checker.system_desc_checker import check_system_desc

from aiperf.config.sections.cluster import SystemSection
from aiperf.rules.description import HARDWARE, OPTIONAL, OTHERS, Fact, describe, missing
from analysis.output.systems import mlperf_system
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.results.ranking import rank
from analysis.results.source import RunResult
from tests.support.hand_made import HandMadeRun

NODE: dict[str, Fact] = {
    "host": "n1",
    "os": "Linux",
    "cpu_model": "EPYC 9654",
    "cpu_count": 96,
    "cpu_sockets": 2,
    "cpu_cores": 192,
    "cpu_max_mhz": 3707.8,
    "cpu_caches": "L1d 32K, L3 32768K",
    "node_cpu_count": 384,
    "node_memory_bytes": 1 << 40,
    "accelerators": 8,
    "node_accelerators": 8,
    "accelerator": "NVIDIA H100 80GB HBM3",
    "accelerator_memory_bytes": 80 << 30,
    "tensorflow": "2.21.0",
    "accelerator_pcie": "8 x PCIe 5 x16",
    "run_file_system": "lustre",
    "run_file_system_bytes": 1 << 50,
    "infiniband": "8 x 400 Gb/sec (4X NDR), InfiniBand, MT4129",
    "mpi": "mpirun (Open MPI) 4.1.6",
    "python": "3.12.1",
}

DECLARED: dict[str, Fact] = {key: f"declared {key}" for key in SystemSection.model_fields if key != "year"}


def reported(root: Path, declared: Mapping[str, Fact], primary: bool = True) -> Report:
    run = HandMadeRun(root, {f"system.{key}": value for key, value in declared.items()}).at(0).release(100)
    run.at(1).start_trial(1).at(60).epoch(1, 1).end(100)
    nodes = {"0": NODE, **({"primary": {**NODE, "host": "login"}} if primary else {})}
    run.paths.system.write_text(json.dumps(nodes))
    return build_report(read_run(run.paths))


def checked(description: dict[str, object], file: Path) -> bool:
    file.write_text(json.dumps(description))
    return bool(check_system_desc(str(file), "training", "5.1.0")[0])


def test_with_the_section_filled_no_field_of_mlcommons_is_empty(tmp_path: Path) -> None:
    report = reported(tmp_path / "run", DECLARED)
    found = mlperf_system(report)
    assert [name for name, text in found.items() if text in ("", None, {})] == []
    assert checked(found, tmp_path / "systems.json")
    assert found["host_networking"] == "declared interconnect", "people know its name"
    assert found["accelerator_host_interconnect"] == "8 x PCIe 5 x16"
    assert found["host_memory_capacity"] == "1024 GiB"
    assert found["other_software_stack"] == {"python": "3.12.1", "mpi": "mpirun (Open MPI) 4.1.6"}


def test_fields_of_the_checker_are_those_that_are_described(tmp_path: Path) -> None:
    """Without any one of them the checker refuses the description; no other is asked for."""
    found = mlperf_system(reported(tmp_path / "run", {}))
    assert checked(found, tmp_path / "systems.json")
    for name in HARDWARE:
        assert not checked({key: text for key, text in found.items() if key != name}, tmp_path / "systems.json"), name


def test_every_key_of_the_section_describes_a_field() -> None:
    assert {field.declared for field in (*HARDWARE.values(), *OTHERS.values())} - {""} == {*SystemSection.model_fields}


def test_what_is_declared_is_marked_and_stands_before_what_is_measured(tmp_path: Path) -> None:
    report = reported(tmp_path, {"interconnect": "NDR", "year": 2025})
    found = {each.field: (each.text, each.source) for each in report.description}
    assert found["host_networking"] == ("NDR", "declared")
    assert found["year"] == ("2025", "declared")
    assert found["host_storage_type"] == ("lustre", "measured")
    assert found["host_processor_frequency"] == ("3707.8 MHz", "measured")
    assert "cooling" not in found


def test_nodes_that_differ_are_counted() -> None:
    found = describe({}, [NODE, NODE, {**NODE, "cpu_model": "EPYC 9554"}])
    texts = {each.field: each.text for each in found}
    assert texts["host_processor_model_name"] == "EPYC 9654 (2 nodes), EPYC 9554 (1 nodes)"


def test_what_is_missing_depends_on_the_accelerators() -> None:
    left = missing(describe({}, [NODE]), accelerators=True)
    assert {"submitter", "cooling", "accelerator_interconnect"} <= left.keys()
    assert not OPTIONAL & left.keys()
    assert not [name for name in missing(describe({}, [NODE]), accelerators=False) if name.startswith("accelerator")]
    assert missing(describe(DECLARED, [NODE]), accelerators=True) == {}


@pytest.mark.parametrize("primary", [True, False], ids=["a run of today", "a run of an earlier version"])
def test_the_node_of_the_primary_is_no_node_of_the_replicas(tmp_path: Path, primary: bool) -> None:
    report = reported(tmp_path, {}, primary)
    assert [*report.system] == ["0"]
    assert (report.primary or {}).get("host") == ("login" if primary else None)
    assert mlperf_system(report)["number_of_nodes"] == 1


def test_a_ranking_names_site_network_and_cooling(tmp_path: Path) -> None:
    report = reported(tmp_path, {"site": "Sea Town", "cooling": "liquid"})
    (row,) = rank([RunResult(tmp_path, report, True)], "score").rows
    assert (row.site, row.cooling, row.network) == ("Sea Town", "liquid", NODE["infiniband"])
