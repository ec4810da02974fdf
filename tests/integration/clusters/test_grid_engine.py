"""Runs in jobs of a real Grid Engine: the documented script over two hosts, as an ordinary user."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documentation.commands import fenced_blocks
from tests.support.folders import ROOT
from tests.support.hand_made import aiperf
from tests.support.hosts.grid_engine import GridEngine, grid_engine
from tests.support.runs import nothing_is_left, raw_records, report, wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridEngine]:
    with grid_engine(tmp_path_factory.mktemp("grid") / "cluster") as started:
        yield started


def documented(output: Path, *changes: tuple[str, str]) -> str:
    """The job script of the documents, for a small run on hosts with a slot each."""
    (script,) = [text for text in fenced_blocks(ROOT / "docs" / "clusters.md", "bash") if "(Grid Engine)" in text]
    small = "digits --set training.trainer=simulated --set search.strategy=random --no-page"
    for old, new in (
        ("mpi 128", "mpi 2"),
        ("imagenet --data-dir /shared/imagenet", small),
        ("/shared/runs/two", f"'{output}'"),
        ("h_rt=13:00:00", "h_rt=11:00:00"),
        *changes,
    ):
        assert old in script
        script = script.replace(old, new)
    return script


def epochs(output: Path, replica: int) -> int:
    files = (output / "history").glob(f"replica-{replica:04}-*.jsonl")
    return sum(file.read_text().count('"type":"epoch"') for file in files)


def both_train(output: Path) -> None:
    """Wait until both replicas have trained on."""
    before = [epochs(output, replica) for replica in (0, 1)]
    wait_for(lambda: all(epochs(output, replica) > before[replica] for replica in (0, 1)))


def test_a_job_that_is_warned_ends_in_order_and_another_one_resumes_its_run(
    cluster: GridEngine, tmp_path: Path
) -> None:
    assert cluster.ask("id", "-u").stdout == "1000\n"
    output = tmp_path / "run"
    job = cluster.submit(documented(output))
    both_train(output)

    assert cluster.ask("qmod", "-sj", job).returncode == 0
    wait_for(lambda: "SIGUSR1: a warning" in cluster.errors(job))
    assert cluster.ask("qmod", "-usj", job).returncode == 0
    both_train(output)
    assert cluster.ask("qdel", job).returncode == 0
    wait_for(lambda: not cluster.has(job))
    found = report(output)
    assert found["ended"] == "interrupted"
    assert [(each["state"], each["reason"]) for each in found["replica_details"]] == [("finished", None)] * 2
    assert {each["node"] for each in found["replica_details"]} == {"node1", "node2"}
    said = cluster.errors(job)
    assert "SIGUSR2: the end" in said
    assert f"Grid Engine job {job}: 2 nodes" in said
    assert re.search(rf"Grid Engine job {job} ends in (11h00m|10h5\dm), before the run", said), said
    nothing_is_left(output, 60)

    # Without -notify, qdel kills.
    job = cluster.submit(documented(output, ("aiperf run", "aiperf run --or-resume"), ("-notify", "")))
    both_train(output)
    assert cluster.ask("qdel", job).returncode == 0
    wait_for(lambda: not cluster.has(job))
    nothing_is_left(output, 60)
    checked = aiperf("check", output, "--format", "json")
    assert json.loads(checked.stdout)["damages"] == [], checked.stdout
    assert [each["type"] for each in raw_records(output)].count("run_resumed") == 1
