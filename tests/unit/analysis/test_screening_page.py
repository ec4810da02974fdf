"""The page of a screening: heat maps, and the list of what to look at, worst first."""

from pathlib import Path

import msgspec
import pytest

from analysis.output.figures.screening import MOST_LABELS, heat_maps, pair_shares, shares
from analysis.verbs.screening import screening_page
from tests.support.nodes.screened import screened


def test_devices_are_shown_as_shares_of_the_median_of_their_kind(tmp_path: Path) -> None:
    found = shares(screened(tmp_path, 4, {1: {("gpu5", "triad"): 0.7}}))
    assert len(found) == 4 * 8
    assert found.pop(("n001", "gpu5"))["triad"] == pytest.approx(0.7, abs=0.02)
    assert min(share for row in found.values() for share in row.values()) > 0.97


def test_pairs_are_shown_if_nodes_have_met(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 4, fabric=True)
    assert set(pair_shares(outcome).values()) == {1.0}
    assert len(pair_shares(outcome)) == 6
    assert set(heat_maps(outcome)) == {"devices", "pairs"}
    assert set(heat_maps(screened(tmp_path, 4))) == {"devices"}


def test_the_worst_node_is_first_and_lost_ones_follow(tmp_path: Path) -> None:
    slow = {0: {("gpu1", "triad"): 0.9}, 3: {("gpu2", "matmul_16"): 0.6}}
    page = screening_page(screened(tmp_path, 6, slow, {2: [None]}))
    table = page[page.index('id="bad"') : page.index("</table>")]
    assert table.index("n003") < table.index("n000") < table.index("replica 2")
    assert "Host list: <code>n000 n003</code>" in page


def test_many_nodes_have_no_names_but_the_number_of_bad_ones(tmp_path: Path) -> None:
    nodes = MOST_LABELS + 20
    drawings = heat_maps(screened(tmp_path, nodes, {5: {("gpu0", "triad"): 0.5}}, fabric=True))
    assert "1 bad" in drawings["devices"].svg
    assert "n003" not in drawings["devices"].svg
    assert f"{nodes} nodes" in drawings["devices"].caption
    assert f"{nodes} nodes" in drawings["pairs"].caption


def test_names_of_nodes_are_text_on_the_page(tmp_path: Path) -> None:
    outcome = screened(tmp_path, 4, {1: {("gpu0", "triad"): 0.5}})
    hostile = msgspec.structs.replace(outcome, remarks=("<script>alert(1)</script>",))
    assert "<script>alert" not in screening_page(hostile)
