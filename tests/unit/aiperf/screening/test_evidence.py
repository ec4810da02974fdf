"""A screening in the record of a run: its age, its bad nodes, hostile names."""

from pathlib import Path

import msgspec
import pytest

from aiperf.clock import format_utc, parse_utc
from aiperf.errors import UsageError
from aiperf.screening.evidence import AHEAD_S, MOST_AGE_S, screened_by
from aiperf.screening.outcome import FILE, Outcome, write_outcome
from tests.support.nodes.screened import screened


@pytest.fixture
def outcome(tmp_path: Path) -> Outcome:
    """The outcome of a screening in `tmp_path`, of which one node was bad and one was lost."""
    found = screened(tmp_path, 5, {1: {("gpu0", "triad"): 0.5}}, {3: [None]})
    (tmp_path / FILE).write_text(write_outcome(found))
    return found


def test_the_record_has_the_bad_nodes_with_their_reasons(tmp_path: Path, outcome: Outcome) -> None:
    found = screened_by(tmp_path, parse_utc(outcome.at))
    assert (found.at, found.nodes, found.quick, len(found.sha256)) == (outcome.at, 5, True, 64)
    slow, lost = found.bad
    assert slow.names == ("n001",)
    assert slow.reason.startswith("gpu0: triad 1,4")
    assert lost.names == ()
    assert "no answer within" in lost.reason


@pytest.mark.parametrize(("age_s", "reason"), [(MOST_AGE_S + 1, "is 24h00m old"), (-AHEAD_S - 1, "is in the future")])
def test_a_screening_of_another_day_is_refused(tmp_path: Path, outcome: Outcome, age_s: float, reason: str) -> None:
    now_ms = parse_utc(outcome.at)
    moved = msgspec.structs.replace(outcome, at=format_utc(now_ms - int(age_s * 1000)))
    (tmp_path / FILE).write_text(write_outcome(moved))
    with pytest.raises(UsageError, match=reason):
        screened_by(tmp_path, now_ms)


def test_names_and_reasons_of_a_hostile_node_are_lines(tmp_path: Path, outcome: Outcome) -> None:
    nodes = (msgspec.structs.replace(outcome.nodes[3], host="\x1b[31m\nn3" + "x" * 900, lost="\x07\n" + "y" * 9000),)
    hostile = msgspec.structs.replace(outcome, nodes=nodes, bad=())
    (tmp_path / FILE).write_text(write_outcome(hostile))
    (bad,) = screened_by(tmp_path, parse_utc(outcome.at)).bad
    assert all(text.isprintable() and len(text) <= 150 for text in (*bad.names, bad.reason))
