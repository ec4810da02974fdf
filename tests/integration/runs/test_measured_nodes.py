"""The micro suite on the nodes of a run, before its release."""

import json
from pathlib import Path

import pytest

from tests.support.hand_made import aiperf
from tests.support.runs import AT_RANDOM, count_epochs, killed_with_time_left, raw_records, report, run_until

pytestmark = pytest.mark.usefixtures("small_caches")

MICRO = ("--set", "micro.suite=quick", "--set", 'micro.operators=["fc"]', *AT_RANDOM)


def test_one_replica_measures_the_node_before_the_release_and_a_resumed_run_does_not_again(tmp_path: Path) -> None:
    output, _ = killed_with_time_left(tmp_path / "run", 6, 1, "--replicas", 2, *MICRO)
    (file,) = (output / "micro").iterdir()
    content = file.read_bytes()
    resumed = aiperf("resume", output, "--new-clock", page=True)
    assert resumed.returncode == 0, resumed.stderr
    assert file.read_bytes() == content
    assert [path.name for path in (output / "micro").iterdir()] == [file.name]
    types = [record["type"] for record in raw_records(output) if record["type"] in ("node_measured", "run_released")]
    assert types == ["node_measured", "run_released", "run_released"]
    part = report(output)["roofline"]
    (ceiling,) = part["ceilings"]
    assert (ceiling["stack"], ceiling["nodes"]) == ("tensorflow", 1)
    assert ceiling["gemm_ops"] > ceiling["triad_bytes_per_s"] > 1e8
    assert {row["operator"] for row in part["operators"]} == {"gemm", "triad", "fc"}
    assert part["problems"] == []
    assert (part["score_share"], part["share_of_ceiling"]) == (None, None), "a simulated run claims nothing"
    assert (output / "report" / "figures" / "roofline.svg").is_file()
    assert len((output / "report" / "tables" / "operators.csv").read_text().splitlines()) == 2 + 9 + 1
    verified = aiperf("verify", output)
    assert verified.returncode == 0, verified.stdout
    file.write_bytes(content.replace(b'"quick"', b'"full" '))
    assert "its hash is" in aiperf("verify", output).stdout


def test_a_suite_that_cannot_run_costs_a_warning(tmp_path: Path) -> None:
    output, _, done = run_until(
        tmp_path / "run",
        3,
        count_epochs,
        *MICRO,
        "--set",
        "micro.stack=native",
        page=True,
        environment={"AIPERF_NATIVE": str(tmp_path / "none.so")},
    )
    assert done.returncode == 0, done.stderr
    said = (output / "logs" / "primary.log").read_text()
    assert "the micro suite (quick) measures every node before the release" in said
    assert "WARNING: replica 0: the micro suite failed: stack native: " in said
    found = report(output)
    assert found["operations_total"] > 0
    assert found["roofline"]["ceilings"] == []
    assert any("'make native' builds it" in problem for problem in found["roofline"]["problems"])
    assert "not known" in (output / "report" / "report.html").read_text().lower()
    assert json.loads(next((output / "micro").iterdir()).read_text())["results"] == []
