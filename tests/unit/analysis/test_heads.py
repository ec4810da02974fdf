"""Heads as they arrived at a referee, next to the records that they stand for."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from aiperf.__main__ import main
from aiperf.errors import EXIT_DONE, UsageError
from aiperf.records.bodies import PrimaryPaused
from aiperf.records.chain import hash_of
from analysis.reading.run_data import read_run
from analysis.results.heads import Arrival, dating_of, read_arrivals
from tests.forgeries.claims import pressed
from tests.support.forging import rewrite
from tests.support.hand_made import HandMadeRun

HOUR_S = 3600


def head_of(run: HandMadeRun, moment: str, delay_s: float = 3.0) -> str:
    """The line of the head now, as it arrives."""
    lines = run.paths.history_file(run.primary.name).read_bytes().splitlines()
    arrived = datetime.fromtimestamp(run.clock.now_ms / 1000 + delay_s, UTC).isoformat()
    return f"{arrived} head {moment}: {run.primary.name} record {len(lines) - 1} sha256 {hash_of(lines[-1])}"


def run_with_heads(root: Path, delay_s: Callable[[float], float] = lambda _: 3.0) -> tuple[HandMadeRun, list[str]]:
    """A run of an hour, and its heads every six minutes as they arrived."""
    run = HandMadeRun(root).at(0).release(HOUR_S)
    heads = [head_of(run, "0.0 h", delay_s(0))]
    for minute in range(6, 60, 6):
        run.at(60 * minute).tell(PrimaryPaused(duration_ms=0))
        heads.append(head_of(run, f"{minute / 60:.1f} h", delay_s(60 * minute)))
    run.end(HOUR_S)
    return run, [*heads, head_of(run, "end", delay_s(HOUR_S))]


def judged(run: HandMadeRun, heads: list[str], tmp_path: Path) -> tuple[bool, str]:
    file = tmp_path / "heads"
    file.write_text("a line of another program\n" + "".join(f"{line}\n" for line in heads))
    found = dating_of(read_run(run.paths), read_arrivals(file))
    return found.dated, found.reason


def test_heads_that_came_as_they_were_made_date_a_run(tmp_path: Path) -> None:
    run, heads = run_with_heads(tmp_path / "run", lambda passed_s: 100 if passed_s < 1800 else 3)
    assert judged(run, heads, tmp_path) == (True, "11 heads, delays within 1m37s")


def test_a_clock_that_is_off_and_copies_that_come_later_accuse_nobody(tmp_path: Path) -> None:
    run, heads = run_with_heads(tmp_path / "run", lambda _: -40_000)
    again = head_of(run, "end", 90_000)
    assert judged(run, [*heads, again], tmp_path) == (True, "11 heads, delays within 0 s")


def test_a_resumed_run_has_no_heads_while_it_had_no_primary(tmp_path: Path) -> None:
    run, (first, *_) = HandMadeRun(tmp_path / "run").at(0).release(HOUR_S), [""]
    first = head_of(run, "0.0 h")
    run.at(3000).resume()
    run.rejoin()
    resumed = head_of(run, "0.8 h")
    run.end(HOUR_S)
    assert judged(run, [first, resumed, head_of(run, "end")], tmp_path)[0]


def test_samples_that_were_added_later_have_no_head(tmp_path: Path) -> None:
    """Nodes and samples are no records: the last record names those that were there."""
    run, heads = run_with_heads(tmp_path / "run")
    run.paths.telemetry.mkdir(exist_ok=True)
    file = run.paths.telemetry_file("replica-0000-1-node")
    file.write_text('{"version": 1}\n')
    reason = f"no head stands for telemetry/{file.name}, which the record of the end does not name"
    assert judged(run, heads, tmp_path) == (False, reason)


FORGED: dict[str, tuple[Callable[[float], float], slice, str]] = {
    "twice as long": (lambda passed_s: passed_s, slice(None), "did not arrive at the pace of the records"),
    "no end": (lambda _: 0, slice(-1), "no head of its end arrived"),
    "no release": (lambda _: 0, slice(3, None), "no head of its first minutes arrived"),
    "nothing in between": (lambda _: 0, slice(None, None, 10), "no head arrived for 1h00m of it"),
}


@pytest.mark.parametrize("name", FORGED)
def test_heads_that_do_not_date_a_run(name: str, tmp_path: Path) -> None:
    delay_s, part, reason = FORGED[name]
    run, heads = run_with_heads(tmp_path / "run", delay_s)
    dated, found = judged(run, heads[part], tmp_path)
    assert not dated
    assert reason in found


def test_records_that_are_rewritten_after_their_heads_are_not_dated(tmp_path: Path) -> None:
    run, heads = run_with_heads(tmp_path / "run")
    rewrite(run.paths, lambda record: replace(record, time_ms=record.time_ms - 1))
    assert judged(run, heads, tmp_path) == (False, "none of the heads is one of these records")


def test_all_times_divided_by_two_do_not_have_the_heads_of_the_run(tmp_path: Path) -> None:
    """Row 7 of the table of forgeries, with everything remade."""
    run, heads = run_with_heads(tmp_path / "run")
    rewrite(run.paths, pressed)
    dated, reason = judged(run, heads, tmp_path)
    assert not dated
    assert reason == "none of the heads is one of these records"


def test_lines_without_a_time_date_nothing(tmp_path: Path) -> None:
    run, heads = run_with_heads(tmp_path / "run")
    assert judged(run, [line.partition(" ")[2] for line in heads], tmp_path) == (
        False,
        "the heads have no times of arrival",
    )


def test_times_are_read_with_their_zones(tmp_path: Path) -> None:
    file, digest = tmp_path / "heads", "ab" * 32
    head = f"head 0.1 h: primary-2 record 7 sha256 {digest}"
    file.write_text(
        f"2026-05-01T14:00:07.5+02:00 mail from ada: {head}\n2026-05-01T12:00:07 {head}\n> {head}, thanks\n"
    )
    found = Arrival("primary-2", 7, digest, 1_777_636_807_500)
    assert read_arrivals(file) == [found, *[Arrival("primary-2", 7, digest, None)] * 2]


@pytest.mark.parametrize("content", [b"", b"\xff\x00nothing", b"head 0.1 h: primary-1 record 1 sha256 abc"])
def test_a_file_without_heads_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "heads").write_bytes(content)
    with pytest.raises(UsageError, match="no line with a head"):
        read_arrivals(tmp_path / "heads")
    with pytest.raises(UsageError):
        read_arrivals(tmp_path / "missing")


def test_check_and_rank_say_whether_a_run_is_dated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, heads = run_with_heads(tmp_path / "run")
    file = tmp_path / "heads"
    file.write_text("\n".join(heads))

    def said(*words: object) -> str:
        assert main([*map(str, words)]) in (EXIT_DONE, 1)
        return capsys.readouterr().out

    assert "times: not dated: no heads were given (--heads FILE)" in said("check", run.paths.root)
    assert "times: dated: 11 heads" in said("check", run.paths.root, "--heads", file)
    found = json.loads(said("check", run.paths.root, "--heads", file, "--format", "json"))
    assert (found["dated"], found["dating"].partition(",")[0]) == (True, "11 heads")
    for words, dated in ((("--heads", file), True), ((), False)):
        (row,) = json.loads(said("rank", run.paths.root, *words, "--format", "json"))["rows"]
        assert row["dated"] is dated
