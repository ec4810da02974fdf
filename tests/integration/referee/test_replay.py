"""Replay: every plan of an honest run comes out again, and a forged one does not."""

import random
from collections.abc import Callable
from math import nextafter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aiperf.records.bodies import EpochCompleted, TrialStarted
from aiperf.records.cursor import parse_cursor
from aiperf.records.record import Record
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from referee.replay import RecordedHistory, Start, replay
from search_space.morphisms import morph_data
from search_space.sampling import random_morph
from tests.support.forging import of_trial, rewrite
from tests.support.hand_made import HandMadeRun
from tests.support.runs import unpacked


def starts_of(paths: RunPaths) -> dict[int, Start]:
    return {start.body.trial: start for start in RecordedHistory(paths).starts()}


def last(paths: RunPaths, own_round: bool) -> Start:
    """The last start of a round's own architecture, or of a point."""
    return max(
        (start for start in starts_of(paths).values() if (start.body.point == 0) == own_round),
        key=lambda start: start.body.trial,
    )


def differing(paths: RunPaths, *trials: int) -> dict[int, set[str]]:
    """Fields that differ, by trial, of these trials or of all."""
    found: dict[int, set[str]] = {}
    for difference in replay(paths, None, trials or None).differences:
        found.setdefault(difference.trial, set()).add(difference.field)
    return found


def state(paths: RunPaths) -> dict[Path, tuple[int, bytes]]:
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in paths.root.rglob("*") if file.is_file()}


def test_all_plans_of_an_honest_run_come_out_again_and_nothing_is_written(run: RunPaths) -> None:
    before = state(run)
    folders = [run.root, *(path for path in run.root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    result = replay(run, None)
    for folder in folders:
        folder.chmod(0o755)
    assert (result.differences, result.unchained) == ((), 0)
    starts = starts_of(run)
    assert result.checked == result.equal == result.replayable == len(starts) >= 12
    assert sum(start.body.point > 0 for start in starts.values()) >= 8
    assert sum(start.body.parent is not None and start.body.point == 0 for start in starts.values()) >= 3
    assert state(run) == before


def test_plans_were_made_ahead_in_part(run: RunPaths) -> None:
    # Otherwise the test above would not show that those are replayed from their own cursor.
    starts = [start for start in starts_of(run).values() if start.body.parent and start.body.point == 0]
    history = RecordedHistory(run)

    def epochs_since(start: Start) -> int:
        behind = history.between(start.writer, parse_cursor(start.body.cursor or "")[start.writer], start.place)
        return sum(isinstance(record.body, EpochCompleted) for record in behind.records)

    assert any(epochs_since(start) for start in starts)


def test_the_sample_is_drawn_by_the_last_records(run: RunPaths) -> None:
    first = replay(run, 3)
    assert (first.checked, first.equal) == (3, 3)
    assert replay(run, 3) == first
    other = max(starts_of(run))
    rewrite(run, of_trial(other, epochs=3))
    assert replay(run, 3).head != first.head
    assert replay(run, 0).checked == 0


def test_a_forged_architecture_with_true_morphs_is_found(run: RunPaths) -> None:
    start = last(run, own_round=True)
    store = ArchitectureStore(run)
    grown = store.load(start.body.architecture)
    morph, child = random_morph(grown, random.Random(1))
    store.save(child)
    rewrite(run, of_trial(start.body.trial, architecture=child.hash, morphs=(*start.body.morphs, morph_data(morph))))
    assert differing(run, start.body.trial)[start.body.trial] == {"architecture", "morphs"}


def test_the_initial_architecture_again_in_place_of_a_proposal_is_found(run: RunPaths) -> None:
    start, first = last(run, own_round=True), starts_of(run)[1].body
    rewrite(run, of_trial(start.body.trial, architecture=first.architecture, parent=None, morphs=()))
    assert differing(run, start.body.trial)[start.body.trial] == {"architecture", "parent", "morphs"}


@pytest.mark.parametrize("own_round", [True, False])
def test_forged_hyperparameters_are_found(run: RunPaths, own_round: bool) -> None:
    body = last(run, own_round).body
    rewrite(run, of_trial(body.trial, hyperparameters={**body.hyperparameters, "batch_size": 128}))
    assert differing(run, body.trial)[body.trial] == {"hyperparameters"}


@pytest.mark.parametrize(
    ("change", "found"),
    [(lambda rate: nextafter(rate, 1), set()), (lambda rate: rate * (1 + 1e-9), {"hyperparameters"})],
    ids=["the last bit", "a billionth"],
)
def test_only_the_last_digits_of_a_number_may_differ(
    run: RunPaths, change: Callable[[Any], float], found: set[str]
) -> None:
    body = last(run, own_round=False).body
    rate = change(body.hyperparameters["learning_rate"])
    rewrite(run, of_trial(body.trial, hyperparameters={**body.hyperparameters, "learning_rate": rate}))
    assert differing(run, body.trial).get(body.trial, set()) == found


@pytest.mark.parametrize("own_round", [True, False])
def test_an_earlier_cursor_is_found(run: RunPaths, own_round: bool) -> None:
    start = last(run, own_round)
    starts = starts_of(run)
    (before,) = (s for s in starts.values() if (s.writer, s.place) == (start.writer, start.before))
    rewrite(run, of_trial(start.body.trial, cursor=before.body.cursor))
    assert "cursor" in differing(run, start.body.trial)[start.body.trial]


def text(places: dict[str, int]) -> str:
    return " ".join(f"{writer}:{place}" for writer, place in sorted(places.items()))


def test_a_later_cursor_is_found(run: RunPaths) -> None:
    start = last(run, own_round=False)
    places = parse_cursor(start.body.cursor or "")
    # With records of the trial itself, which no cursor can know.
    rewrite(run, of_trial(start.body.trial, cursor=text({**places, start.writer: start.place})))
    assert {"cursor", "cursor_hash"} <= differing(run, start.body.trial)[start.body.trial]
    ended = RecordedHistory(run).head.heads["primary-1"][0]
    rewrite(run, of_trial(start.body.trial, cursor=text({**places, "primary-1": ended + 1})))
    assert differing(run, start.body.trial)[start.body.trial] == {"cursor"}


def test_a_cursor_that_knows_a_later_result_of_another_replica_is_found(run: RunPaths) -> None:
    starts = sorted(starts_of(run).values(), key=lambda start: start.body.trial)
    start = [start for start in starts if start.body.point == 0 and start.body.parent][-2]
    places = parse_cursor(start.body.cursor or "")
    (other,) = (writer for writer in places if writer.startswith("replica") and writer != start.writer)
    end = RecordedHistory(run).head.heads[other][0]
    rewrite(run, of_trial(start.body.trial, cursor=text({**places, other: end})))
    assert start.body.trial in differing(run, start.body.trial)


def test_a_changed_line_does_not_fit_the_cursors_behind_it(run: RunPaths) -> None:
    file = run.history_file("replica-0000-1")
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"replica":0', b'"replica":1')
    file.write_bytes(b"".join(lines))
    places = [parse_cursor(start.body.cursor or "") for start in starts_of(run).values()]
    at = [place for place in places if place.get("replica-0000-1") == 2]
    found = [trial for trial, fields in differing(run).items() if "cursor_hash" in fields]
    assert len(found) == len(at)


def test_a_chained_start_without_a_cursor_is_a_difference(run: RunPaths) -> None:
    def strip(record: Record) -> Record:
        if isinstance(record.body, TrialStarted):
            return replace(record, body=replace(record.body, cursor=None, cursor_hash=None))
        return record

    count = len(starts_of(run))
    rewrite(run, strip)
    result = replay(run, None)
    assert (len(result.differences), result.equal, result.checked, result.replayable) == (count, 0, count, 0)


def test_records_that_make_a_plan_impossible_are_differences(run: RunPaths) -> None:
    trials = sorted(starts_of(run))
    point = last(run, own_round=False).body.trial
    changes: dict[int, dict[str, object]] = {
        trials[1]: {"precision": "float8"},
        trials[2]: {"cursor": "nobody:1"},
        trials[3]: {"cursor": "z!"},
        trials[4]: {"memory_bytes": 1},
        point: {"base": 10_000},
    }
    for trial, change in changes.items():
        rewrite(run, of_trial(trial, **change))
    assert changes.keys() == differing(run, *changes).keys()


def test_a_run_without_a_chain_has_nothing_to_replay(tmp_path: Path) -> None:
    result = replay(unpacked(tmp_path), None)
    assert (result.checked, result.replayable, result.differences) == (0, 0, ())
    assert result.unchained == 37


def test_a_run_that_trained_nothing_has_nothing_to_replay(tmp_path: Path) -> None:
    assert replay(HandMadeRun(tmp_path).at(0).release(100).paths, None).checked == 0
