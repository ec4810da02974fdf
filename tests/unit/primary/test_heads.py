"""Heads of the primary's file: at the release, every 0.1 hour, and at the end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from aiperf.records.chain import hash_of
from primary.context import RunContext
from primary.dispatcher import EXPLANATION, HeadLines
from tests.support.hand_made import HandMadeRun


def test_the_head_is_announced_on_the_grid_and_at_the_end(tmp_path: Path) -> None:
    run, shown = HandMadeRun(tmp_path), list[str]()
    heads = HeadLines(cast(RunContext, SimpleNamespace(writer=run.primary, announce=shown.append)))
    run.at(0).release(7200)

    def line(moment: str) -> str:
        lines = run.paths.history_file("primary-1").read_bytes().splitlines()
        return f"head {moment}: primary-1 record {len(lines) - 1} sha256 {hash_of(lines[-1])}"

    expected = [EXPLANATION]
    for elapsed_s, moment in ((0.01, "0.0 h"), (359.9, ""), (360.4, "0.1 h"), (361, ""), (3600, "1.0 h")):
        run.lose(0)
        heads.look(elapsed_s)
        expected += [line(moment)] if moment else []
    run.end(7200)
    heads.last()
    assert shown == [*expected, line("end")]


def test_a_resumed_run_begins_at_its_place_on_the_grid(tmp_path: Path) -> None:
    run, shown = HandMadeRun(tmp_path).release(7200), list[str]()
    heads = HeadLines(cast(RunContext, SimpleNamespace(writer=run.primary, announce=shown.append)))
    for elapsed_s in (1300, 1301, 1440):
        heads.look(elapsed_s)
    assert [text.split(":")[0] for text in shown[1:]] == ["head 0.3 h", "head 0.4 h"]


def test_a_run_without_records_has_no_head(tmp_path: Path) -> None:
    shown = list[str]()
    HeadLines(cast(RunContext, SimpleNamespace(writer=HandMadeRun(tmp_path).primary, announce=shown.append))).last()
    assert shown == []
