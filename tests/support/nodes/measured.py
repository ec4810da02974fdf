"""Nodes of hand-made runs as the micro suite would have measured them, and of real ones."""

from pathlib import Path
from typing import Any

from aiperf.files import write_atomically
from aiperf.host import this_host
from aiperf.records.bodies import NodeMeasured
from aiperf.records.chain import hash_of
from aiperf.run_directory.micro_results import MicroRow, NodeResult, decoded_node, encoded, file_name
from aiperf.run_directory.paths import RunPaths, measured_file
from tests.support.hand_made import HandMadeRun, aiperf
from tests.support.runs import raw_records, report


def row(operator: str, kind: str = "ceiling", **facts: Any) -> MicroRow:
    """A result on two CPUs of an AMD EPYC, in float32."""
    return MicroRow.model_validate(
        {
            "operator": operator,
            "kind": kind,
            "shape": "8 -> 8",
            "pass": "forward",
            "stack": "tensorflow",
            "precision": "float32",
            "device": "AMD EPYC",
            "cpus": 2,
            "ops_per_s": 1e11,
            "bytes_per_s": 1e10,
            "images_per_s": 100.0,
            "spread": 0.03,
            **facts,
        }
    )


ROWS = (
    row("gemm", ops_per_s=2e11, bytes_per_s=1e9),
    row("triad", ops_per_s=2e9, bytes_per_s=2e10),
    row("conv", "dense2d", shape="48x72x256 3x3 -> 256", ops_per_s=1.5e11, share_of_ceiling=0.75, bound="compute"),
    row("maxpool", "sparse2d", shape="64x64x3 2x2 /2", ops_per_s=2e9, share_of_ceiling=0.5, bound="memory"),
    row("fc", "dense3d", shape="32768 -> 128", **{"pass": "weights"}, share_of_ceiling=0.3, bound="memory"),
)
"""A quick suite: P = 200 GOPS, B = 20 GB/s."""


def measure_node(run: HandMadeRun, host: str = "n1", rows: tuple[MicroRow, ...] = ROWS, **facts: Any) -> HandMadeRun:
    """Put the results of a node into the run, and have the primary record them."""
    found = {"host": host, "replica": 0, "suite": "quick", "stack": "tensorflow", "precision": "float32", **facts}
    data = encoded(NodeResult.model_validate({**found, "results": [each.model_dump(by_alias=True) for each in rows]}))
    write_atomically(measured_file(run.paths, file_name(host)), data)
    run.primary.append(NodeMeasured(replica=0, name=file_name(host), digest=hash_of(data)))
    return run


MICRO = ("--set", "micro.suite=quick", "--set", 'micro.operators=["fc"]', "--set", "micro.stack=jax")
"""Settings of a run that measures its nodes by the shortest suite, on the lightest stack."""


def check_measured_node(output: Path) -> None:
    """Raise AssertionError unless this machine was measured once, before the release."""
    name = file_name(this_host().name())
    data = measured_file(RunPaths(output), name).read_bytes()
    assert [path.name for path in (output / "micro").iterdir()] == [name]
    found = decoded_node(data, name)
    assert not found.problems
    assert {each.operator for each in found.results} == {"gemm", "triad", "fc"}
    records = [each for each in raw_records(output) if each["type"] in ("node_measured", "run_released")]
    assert [each["type"] for each in records] == ["node_measured", "run_released"]
    assert (records[0]["name"], records[0]["digest"]) == (name, hash_of(data))
    (ceiling,) = report(output)["roofline"]["ceilings"]
    assert (ceiling["nodes"], ceiling["gemm_ops"] > 0) == (1, True)
    verified = aiperf("verify", output)
    assert verified.returncode == 0, verified.stdout
