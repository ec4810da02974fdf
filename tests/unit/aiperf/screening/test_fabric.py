"""The network in a screening: the arithmetic of nccl-tests, the rounds, the fit, the judgement."""

from itertools import combinations

import pytest

from aiperf.screening.fabric import (
    Meeting,
    bus_bandwidth,
    fit,
    rounds,
    rows_of,
    slow_pairs,
    typical_fit,
)
from aiperf.screening.judgement import Measured, judge
from aiperf.screening.messages import Collective, Timed


@pytest.mark.parametrize(
    ("collective", "ranks", "expected"),
    [
        # nccl-tests, doc/PERFORMANCE.md: all-reduce 2 (n - 1) / n, send and receive 1, the others
        # (n - 1) / n
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("all_to_all", 4, 0.75),
        ("send_receive", 2, 1.0),
        ("send_receive", 8, 1.0),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(collective: Collective, ranks: int, expected: float) -> None:
    timed = Timed(collective=collective, size=1_000_000, seconds=0.001)
    assert bus_bandwidth(timed, ranks) == pytest.approx(expected * 1e9)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 64])
def test_everybody_meets_everybody_once_and_nobody_twice_at_a_time(count: int) -> None:
    made = rounds(count)
    assert sorted(pair for pairing in made for pair in pairing) == sorted(combinations(range(count), 2))
    assert all(len({node for pair in pairing for node in pair}) == 2 * len(pairing) for pairing in made)
    assert len(made) == count - 1 + count % 2


def meeting(*nodes: str, latency_s: float = 1e-5, rate: float = 1e10, spread: float = 0.02, number: int = 0) -> Meeting:
    """A meeting whose all-reduces take a ring's times."""
    ranks = max(2, len(nodes))
    times = tuple(
        Timed(
            collective="all_reduce",
            size=size,
            spread=spread,
            seconds=2 * (ranks - 1) * (latency_s + size / ranks / rate),
        )
        for size in (8, 1 << 16, 1 << 20, 1 << 24)
    )
    return Meeting(nodes=nodes, ranks=ranks, library="gloo", number=number, times=times)


def test_the_fit_gives_latency_and_bandwidth_back() -> None:
    for nodes in (("a", "b"), ("a", "b", "c", "d", "e")):
        found = fit(meeting(*nodes, latency_s=3e-5, rate=2e9))
        assert found is not None
        assert (found.latency_s, found.bytes_per_s) == pytest.approx((3e-5, 2e9))
    assert fit(Meeting(nodes=("a", "b"), ranks=2, number=0, problem="refused")) is None


def test_the_fit_between_nodes_is_that_of_all_and_within_nodes_the_median() -> None:
    between = [
        meeting("a", "b", rate=9e9),
        meeting("a", "b", "c", rate=5e9),
        meeting("a", "b", "c", rate=1e9, number=1),
    ]
    inside = [meeting(name, rate=rate, number=1) for name, rate in (("a", 1e11), ("b", 3e11), ("c", 2e11))]
    found, within = (typical_fit([*between, *inside], inside=place) for place in (False, True))
    assert found is not None
    assert within is not None
    assert (found.bytes_per_s, within.bytes_per_s) == pytest.approx((1e9, 2e11))
    assert typical_fit(between, inside=True) is None


@pytest.mark.parametrize(("latency_s", "rate"), [(5e-3, 1e10), (1e-5, 1e9)])
@pytest.mark.parametrize("count", [3, 4, 8])
def test_a_node_behind_a_slow_link_is_named_and_none_that_it_has_met(latency_s: float, rate: float, count: int) -> None:
    nodes = [f"n{number}" for number in range(count)]
    pairs = [
        meeting(*pair, latency_s=latency_s, rate=rate) if "n1" in pair else meeting(*pair)
        for pair in combinations(nodes, 2)
    ]
    measured = [Measured(node, row) for node in nodes for row in rows_of(node, pairs)]
    assert {finding.node for finding in judge([measured])} == {"n1"}
    assert slow_pairs(pairs, {"n1"}) == []


def test_a_slow_link_between_good_nodes_is_remarked_on_if_it_is_slow_in_every_pass() -> None:
    nodes = ["a", "b", "c", "d"]

    def one_pass(number: int, rate: float) -> list[Meeting]:
        return [
            meeting(*pair, number=number, rate=rate if pair == ("a", "b") else 1e10) for pair in combinations(nodes, 2)
        ]

    always = one_pass(0, 2e9) + one_pass(1, 2e9)
    assert [text.partition(":")[0] for text in slow_pairs(always, ())] == ["a - b"]
    assert slow_pairs(one_pass(0, 2e9) + one_pass(1, 1e10), ()) == []
    assert slow_pairs(always, ("b",)) == []


def test_a_node_that_reaches_no_other_has_the_reason_in_place_of_values() -> None:
    pairs = [Meeting(nodes=("a", "b"), ranks=2, number=0, problem="refused"), meeting("a", "c")]
    (row,) = rows_of("b", pairs)
    assert (row.value, row.problem) == (None, "refused")
    assert row.kind == rows_of("a", pairs)[0].kind, "otherwise nobody would be its equal"
    assert rows_of("d", pairs) == []
