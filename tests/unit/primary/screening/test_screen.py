"""Screenings of nodes that exist in this process alone: coordination, lost nodes, the outcome."""

import io
import json
import re
import shlex
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import jsonschema
import msgspec
import numpy as np
import pytest

from aiperf.cli.console import PlainConsole
from aiperf.errors import UsageError
from aiperf.screening.baseline import read_baseline, write_baseline
from aiperf.screening.messages import Exchanged, Row, Sheet, kind_of_cpus
from aiperf.screening.outcome import bad_values, read_outcome, remarks_of, write_outcome
from aiperf.screening.schema import schema
from aiperf.wire.lines import encode
from primary.screening.text import lines_to_paste, print_outcome
from slurm.hostlists import expand
from tests.support.nodes.screened import KIND, present, screened, sheet


def test_a_bad_device_is_named_with_what_explains_it_and_no_other(tmp_path: Path) -> None:
    slow = {2: {("gpu5", "matmul_16"): 0.7, ("gpu5", "clock"): 0.6}}
    outcome = screened(tmp_path, 4, slow)
    (bad,) = outcome.bad
    assert (bad.node, bad.device, bad.measure) == ("n002", "gpu5", "matmul_16")
    assert bad.causes == ("its clock is at 1188 MHz (the others 1980)",)
    assert outcome.bad_nodes == outcome.hosts == ("n002",)
    assert outcome.passes == 3, "a bad value is confirmed"


def test_a_node_that_hangs_holds_the_others_for_a_few_times_of_what_they_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primary.screening.visits.PATIENCE_S", 0.01)
    faults: dict[int, Sequence[bytes | None]] = {1: [present(1), None], 3: [None]}
    outcome = screened(tmp_path, 5, faults=faults, limit_s=10_000, launcher_name="local")
    lost = {node.replica: node.lost or "" for node in outcome.nodes if node.lost is not None}
    assert lost.keys() == {1, 3}
    assert all(re.search(r"no answer within .*; the median of the others: ", reason) for reason in lost.values())


def test_every_node_meets_others_in_pairs_and_all_meet_and_so_do_the_devices_of_each(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 5, fabric=True)
    pairs = [meeting.nodes for meeting in outcome.meetings if len(meeting.nodes) == 2]
    assert len(set(pairs)) == len(pairs) == 3 * 2, "three quick rounds of five nodes"
    assert {node for pair in pairs for node in pair} == {f"n{number:03d}" for number in range(5)}
    whole, *inside = outcome.meetings[len(pairs) :]
    assert (len(whole.nodes), whole.ranks, whole.library) == (5, 5, "nccl")
    assert [(meeting.nodes, meeting.ranks) for meeting in inside] == [((f"n{number:03d}",), 8) for number in range(5)]
    (row,) = (row for row in outcome.nodes[0].sheets[0].rows if row.measure == "pair_all_reduce")
    assert row.kind == "network, nccl"
    assert row.value == pytest.approx((1 << 24) / 1e-3)
    assert outcome.bad == ()


def test_a_node_whose_accelerators_copy_slowly_to_each_other_is_named(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 5, fabric=True, slow_inside={3: 0.4})
    assert [(item.node, item.device, item.measure) for item in outcome.bad] == [("n003", "node", "inside_send_receive")]
    assert outcome.reasons("n003") == ["node: inside_send_receive 6.711 GB/s, the median of 5 is 16.78 GB/s (40%)"]
    sizes = screened(tmp_path, 5, fabric=True, slow_inside={3: 0.4}, devices={3: 4})
    assert "inside_send_receive" not in {item.measure for item in sizes.bad}, "a node of another size is no equal"


@pytest.mark.parametrize("line", [None, b"", b"Bus error\n"])
def test_a_node_that_fails_in_a_pair_costs_its_own_line(line: bytes | None, tmp_path: Path) -> None:
    good = encode(sheet(np.random.default_rng(2), 8, 0.004, {}))
    outcome = screened(tmp_path, 4, fabric=True, faults={1: [present(1), good, line]})
    assert [node.replica for node in outcome.nodes if node.lost is not None] == [1]
    assert {node for meeting in outcome.meetings if meeting.times for node in meeting.nodes} == {"n000", "n002", "n003"}
    assert [meeting.nodes for meeting in outcome.meetings if meeting.problem] != []
    assert outcome.bad_nodes == ("n001",)


def test_a_node_that_reaches_no_other_is_named(tmp_path: Path) -> None:
    refused = encode(Exchanged(library="nccl", problem="refused"))
    good = encode(sheet(np.random.default_rng(2), 8, 0.004, {}))
    outcome = screened(tmp_path, 4, fabric=True, faults={1: [present(1), *[good, *[refused] * 5] * 3]})
    assert outcome.bad_nodes == ("n001",)
    failed = ["network: pair_all_reduce failed; refused", "node: inside_all_reduce failed; refused"]
    assert sorted(outcome.reasons("n001")) == failed
    assert (outcome.passes, outcome.remarks) == (3, ())


def test_a_node_with_slow_storage_is_named_and_one_node_measures_it_alone_first(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 5, slow_storage={3: 0.4})
    assert [(item.node, item.device, item.measure) for item in outcome.bad] == [("n003", "storage", "data_read")]
    assert [row.measure for row in outcome.one_node] == ["data_read"], "once, before the first pass of all"
    assert outcome.passes == 3
    assert screened(tmp_path, 5, slow_storage={}).bad == ()


def test_doubtful_values_are_remarked_on(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 3)
    doubtful = Row(device="storage", kind="storage", measure="data_read", value=1e9, problem="from the cache")
    nodes = [
        msgspec.structs.replace(node, sheets=(msgspec.structs.replace(node.sheets[0], rows=(doubtful,)),))
        for node in outcome.nodes
    ]
    assert remarks_of(nodes) == ("data_read of storage on 3 of 3 nodes: from the cache",)


def test_a_node_with_a_device_less_than_the_others_is_named(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 4, devices={2: 7})
    (bad,) = outcome.bad
    assert (bad.node, bad.reason, bad.value, bad.typical) == ("n002", "missing", 7, 8)
    assert outcome.reasons("n002") == [f"node: 7 x {KIND}, the median of 4 nodes is 8"]
    mixed = screened(tmp_path, 4, devices={2: 4, 3: 4})
    assert mixed.bad == (), "a cluster of nodes of two sizes"


@pytest.mark.parametrize(("last", "expected"), [(2, ["n003"]), (16, [])])
def test_a_node_that_may_use_fewer_cpus_than_the_others_is_named(
    tmp_path: Path, last: int, expected: list[str]
) -> None:
    """A quota of its control group makes it a kind of its own, to which nothing is compared."""
    outcome = screened(tmp_path, 4)
    nodes = [
        msgspec.structs.replace(node, sheets=(Sheet(rows=(row_of_cpus(16 if node.replica < 3 else last),)),))
        for node in outcome.nodes
    ]
    found = bad_values(nodes, 0.05, {})
    assert [item.node for item in found] == expected
    assert [item.text for item in found] == ["2 x EPYC, 64 cores (CPUs), the median of 4 nodes is 16"] * len(expected)


def row_of_cpus(number: int) -> Row:
    return Row(device="cpu", kind=kind_of_cpus("EPYC, 64 cores", number), measure="triad", value=1e10)


def test_devices_that_no_node_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no node has gpu9; they have gpu0"):
        screened(tmp_path, 2, names=("gpu0", "gpu9"))


def test_an_outcome_fits_its_schema_and_the_file_is_the_classes(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 4, {1: {("gpu0", "triad"): 0.5}}, {2: [None]})
    text = resources.files("aiperf.screening").joinpath("screen.schema.json").read_text()
    assert json.loads(text) == schema(), "run: make docs"
    jsonschema.validate(json.loads(write_outcome(outcome)), schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"version": 2}, schema())


def test_an_even_cluster_is_measured_once(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 4)
    assert (outcome.bad, outcome.bad_nodes, outcome.passes) == ((), (), 1)


FAULTS: dict[str, tuple[Sequence[bytes | None], str]] = {
    "hangs at its start": ([None], "no answer within"),
    "hangs at work": ([present(1), None], "no answer within"),
    "dies at its start": ([b""], "its program ended with exit code 1; its node is down"),
    "dies at work": ([present(1), b""], "its program ended with exit code 1; its node is down"),
    "prints nonsense": ([present(1), b"Segmentation fault (core dumped)\n"], "no message of the protocol"),
    "prints a wrong message": ([b'{"type":"sheet","rows":[]}\n'], "expected the node's description"),
    "prints NaN": (
        [
            present(1),
            b'{"type":"sheet","rows":[{"type":"row","device":"cpu","kind":"x","measure":"triad","value":"NaN"}]}\n',
        ],
        "no message of the protocol",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_that_fails_costs_its_own_line(fault: str, tmp_path: Path) -> None:
    lines, reason = FAULTS[fault]
    outcome = screened(tmp_path, 5, faults={1: lines})
    assert [node.replica for node in outcome.nodes if node.lost is not None] == [1]
    assert reason in (outcome.nodes[1].lost or "")
    assert len(outcome.bad_nodes) == 1
    assert all(len(node.sheets) == 1 for node in outcome.nodes if node.replica != 1)


def test_512_nodes_are_coordinated_and_the_bad_ones_named(tmp_path: Path) -> None:
    slow = {7: {("gpu0", "triad"): 0.8}, 300: {("gpu7", "matmul_32"): 0.85}}
    outcome = screened(tmp_path, 512, slow, {11: [None], 400: [b""]})
    assert set(outcome.bad_nodes) == {"n007", "n300", "replica 11", "replica 400"}
    assert outcome.hosts == ("n007", "n300")


def test_the_outcome_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 4, {1: {("gpu0", "triad"): 0.5}})
    (tmp_path / "screen.json").write_text(write_outcome(outcome))
    assert read_outcome(tmp_path) == read_outcome(tmp_path / "screen.json") == outcome
    (tmp_path / "screen.json").write_text("{}")
    with pytest.raises(UsageError, match="is not the outcome of a screening"):
        read_outcome(tmp_path)


def test_bad_nodes_are_printed_as_lists_and_as_commands_that_a_shell_reads(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 6, {1: {("gpu0", "triad"): 0.5}, 2: {("gpu3", "triad"): 0.6}})
    stream = io.StringIO()
    print_outcome(PlainConsole(file=stream, width=200), outcome)
    assert "2 of 6 nodes are bad" in stream.getvalue()
    hosts, option, note, *commands = lines_to_paste(outcome)
    assert option == "to run without them: --exclude 'n[001-002]'"
    assert expand(hosts.removeprefix("host list: ")) == ("n001", "n002")
    assert note == "to drain them (not done):"
    words = shlex.split(commands[0])
    assert words[:4] == ["scontrol", "update", "nodename=n001", "state=drain"]
    assert words[4].startswith("reason=aiperf screen: gpu0: triad 1,4")
    assert len(words) == 5


def test_a_baseline_has_floors_below_what_good_devices_have(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 6, {1: {("gpu0", "triad"): 0.5}})
    file = tmp_path / "floors.toml"
    file.write_text(write_baseline(outcome))
    floors = read_baseline(file)
    assert floors[KIND, "triad"] == pytest.approx(0.95 * 2.9e12, rel=0.01)
    assert file.read_text().startswith("# Floors for `aiperf screen --baseline`")


def test_every_problem_of_a_baseline_is_named(tmp_path: Path) -> None:
    file = tmp_path / "floors.toml"
    file.write_text('speed = 3\n["GPU"]\ntriad = -1\nmatmull = 2.0\n')
    with pytest.raises(UsageError) as error:
        read_baseline(file)
    text = "\n".join(error.value.lines)
    assert all(part in text for part in ("speed is not a table", "triad = -1", "matmull is not a measure"))
