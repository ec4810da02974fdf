"""The verdicts of the campaign of planted bad nodes, on outcomes that are made up."""

from pathlib import Path

import pytest

from tests.faults.planted.screening import Round
from tests.support.nodes.screened import screened

TRIAD = {1: {("gpu0", "triad"): 0.5}}
PRODUCT = {1: {("gpu0", "matmul_16"): 0.5}}


@pytest.mark.parametrize(
    ("played", "slow", "verdict"),
    [
        (Round("device", "n001"), TRIAD, "right"),
        (Round("device", "n001"), PRODUCT, "missed"),
        (Round("device", "n002"), TRIAD, "accused"),
        (Round("device", "n001"), {}, "missed"),
        (Round("device", "n001"), TRIAD | {2: TRIAD[1]}, "accused"),
        (Round("even", "n001"), {}, "right"),
        (Round("even", "n001"), TRIAD, "accused"),
        (Round("hang", "n001"), TRIAD, "missed"),
    ],
)
def test_only_the_planted_node_by_its_measure_is_right(
    tmp_path: Path, played: Round, slow: dict[int, dict[tuple[str, str], float]], verdict: str
) -> None:
    assert played.verdict(screened(tmp_path, 5, slow)) == verdict


def test_a_node_that_hangs_is_lost(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 4, faults={1: [None]})
    name = outcome.bad_nodes[0]
    assert Round("hang", name).verdict(outcome) == "right"
