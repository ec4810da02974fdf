"""Who is named: planted bad devices and no other, in clusters of several sizes."""

from collections.abc import Iterator

import numpy as np
import pytest

from aiperf.screening.judgement import LOWER_SHARE, Finding, Measured, causes, judge, limit_for
from aiperf.screening.messages import Row

MEASURES = 10


def cluster(
    nodes: int, noise: float, seed: int, slow: dict[tuple[int, int], float] | None = None, kind: str = "GPU"
) -> Iterator[Measured]:
    """One pass of nodes with a device each; `slow` are factors by node and measure."""
    values = 1e12 * (1 + noise * np.random.default_rng(seed).normal(size=(nodes, MEASURES)))
    for (node, measure), factor in (slow or {}).items():
        values[node, measure] *= factor
    for node in range(nodes):
        for measure in range(MEASURES):
            row = Row(
                device="gpu0", kind=kind, measure=f"m{measure}", value=max(1.0, values[node, measure]), spread=noise
            )
            yield Measured(f"n{node}", row)


def passes(
    nodes: int, noise: float, seed: int, slow: dict[tuple[int, int], float] | None = None
) -> list[list[Measured]]:
    return [list(cluster(nodes, noise, 3 * seed + number, slow)) for number in range(3)]


def places(found: list[Finding]) -> set[tuple[str, str]]:
    return {(item.node, item.measure) for item in found}


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02, 0.1])
@pytest.mark.parametrize("nodes", [3, 4, 16, 512])
def test_an_even_cluster_names_nobody(nodes: int, noise: float) -> None:
    for seed in range(5 if nodes > 100 else 100):
        assert judge(passes(nodes, noise, seed)) == []


@pytest.mark.parametrize(("nodes", "factor"), [(4, 0.6), (16, 0.85), (512, 0.9)])
def test_planted_slow_devices_are_named_and_no_other(nodes: int, factor: float) -> None:
    for seed in range(3 if nodes > 100 else 20):
        found = judge(passes(nodes, 0.005, seed, {(1, 4): factor}))
        assert places(found) == {("n1", "m4")}
        (one,) = found
        assert one.compared == nodes
        assert one.share == pytest.approx(factor, rel=0.05)
        assert one.reason == "below its equals"


def test_several_bad_devices_come_worst_first() -> None:
    found = judge(passes(64, 0.005, 1, {(3, 0): 0.8, (9, 2): 0.5, (9, 3): 0.7}))
    assert [(item.node, item.measure) for item in found] == [("n9", "m2"), ("n9", "m3"), ("n3", "m0")]


def test_a_value_that_is_bad_in_one_pass_alone_names_nobody() -> None:
    even, uneven = list(cluster(16, 0.005, 1)), list(cluster(16, 0.005, 2, {(3, 0): 0.5}))
    assert judge([uneven]) != []
    assert judge([uneven, even]) == []


def test_a_device_is_not_bad_within_the_share_however_even_the_others_are() -> None:
    assert judge([list(cluster(16, 0.0, 1, {(3, 0): 0.951}))]) == []
    assert places(judge([list(cluster(16, 0.0, 1, {(3, 0): 0.949}))])) == {("n3", "m0")}
    assert places(judge([list(cluster(16, 0.0, 1, {(3, 0): 0.951}))], lower_share=0.04)) == {("n3", "m0")}


def test_devices_of_other_kinds_are_not_compared() -> None:
    slow = [Measured(f"old{item.node}", item.row) for item in cluster(8, 0.001, 2, kind="older GPU")]
    halved = [
        Measured(
            item.node, Row(device="gpu0", kind=item.row.kind, measure=item.row.measure, value=(item.row.value or 0) / 2)
        )
        for item in slow
    ]
    assert judge([[*cluster(8, 0.001, 1), *halved]]) == []


def test_of_two_devices_none_is_known_to_be_the_slow_one() -> None:
    assert judge([list(cluster(2, 0.0, 1, {(1, 0): 0.1}))]) == []


def test_a_floor_names_all_that_are_below_even_if_all_are_alike() -> None:
    found = judge([list(cluster(2, 0.0, 1, {(1, 0): 0.8}))], LOWER_SHARE, {("GPU", "m0"): 0.9e12})
    assert [(item.node, item.reason, item.typical) for item in found] == [("n1", "below the floor", 0.9e12)]


def test_the_scatter_of_the_measurements_themselves_is_a_spread() -> None:
    def noisy(spread: float) -> list[Measured]:
        values = [1.0, 1.0, 1.0, 0.8]
        return [
            Measured(f"n{number}", Row(device="cpu", kind="CPU", measure="triad", value=value, spread=spread))
            for number, value in enumerate(values)
        ]

    assert places(judge([noisy(0.01)])) == {("n3", "triad")}
    assert judge([noisy(0.2)]) == []


def test_the_limit_falls_with_the_number_of_devices() -> None:
    assert limit_for(3) > limit_for(6) > limit_for(12) > limit_for(24) >= limit_for(4096)


def test_only_facts_in_which_a_device_differs_are_causes() -> None:
    others = [{"sm_clock": 1980.0, "temperature": 60.0}] * 3
    assert causes({"sm_clock": 1100.0, "temperature": 62.0}, others) == ["its clock is at 1100 MHz (the others 1980)"]
    assert causes({"sm_clock": 1980.0, "temperature": 88.0}, others) == ["it is at 88 degrees Celsius (the others 60)"]
    assert causes({"sm_clock": 1100.0}, []) == []
    assert causes({"held_by_quota": 0.5}, [{"held_by_quota": 0.5}] * 3) == []


def scattered(seed: int, slow: float = 1.0) -> list[list[Measured]]:
    """Three passes of four nodes whose values scatter by a factor, as those of a busy network."""
    generator = np.random.default_rng(seed)
    factors = np.exp(0.35 * generator.normal(size=(3, 4, MEASURES)))
    factors[:, 2, 0] *= slow
    return [
        [
            Measured(
                f"n{node}",
                Row(device="network", kind="gloo", measure=f"m{measure}", spread=0.5, value=1e9 * found[node, measure]),
            )
            for node in range(4)
            for measure in range(MEASURES)
        ]
        for found in factors
    ]


def test_of_values_that_scatter_one_far_below_all_others_is_named() -> None:
    assert all(places(judge(scattered(seed, 0.08))) == {("n2", "m0")} for seed in range(100))
    assert all(judge(scattered(seed)) == [] for seed in range(300))
