"""Lines that are decoded fast: exactly what pydantic decodes, and nothing that it refuses."""

from __future__ import annotations

import json
import zlib
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from aiperf.errors import RecordDamagedError
from aiperf.records import record as records
from aiperf.records.bodies import (
    AnyBody,
    EpochCompleted,
    GroupExchanged,
    JobIssued,
    PhaseBegan,
    ProgressMade,
    RunReleased,
    ServerServed,
    TrialBuilt,
    TrialStarted,
)
from aiperf.records.decoding.scan import PHASES, Scanner
from aiperf.records.decoding.typed import decode_typed
from aiperf.records.record import Record, decode_record, encode_record
from tests.support.fuzz import examples

LINK = "0" * 64
USUAL: list[Any] = [
    PhaseBegan(replica=1, trial=None, phase="idle"),
    EpochCompleted(
        trial=1, epoch=2, images_trained=3, images_evaluated=4, correct=1, loss=1.0, validation_loss=1.5,
        learning_rate=0.1, evidence=LINK, weights=LINK,
    ),
    GroupExchanged(
        trial=1, epoch=2, group=1, updates=3, images=96, staleness=(1, 0, 2), computing_s=1.5, group_s=0.0,
        waiting_s=0.25, bytes_exchanged=1 << 40,
    ),
    ServerServed(trial=1, epoch=2, server=0, updates=6, busy_share=0.125),
    TrialStarted(
        trial=3, replica=1, round=2, architecture="a", parent="b", morphs=({"kind": "Widen", "node": "x", "by": 2},),
        hyperparameters={"batch_size": 4, "momentum": 0.9, "optimiser": "sgd"}, epochs=20,
    ),
    RunReleased(duration_ms=3_600_000, ready=(0, 1)),
    JobIssued(trial=1, replica=2, round=3, seed=4),
    TrialBuilt(
        trial=1, architecture="a", compute={"bfloat16": 54}, devices=("H200",), framework="f", source_hash="s",
        environment={"TF_X": "1"},
    ),
]  # fmt: skip
BODIES = st.one_of(*(st.builds(kind) for kind in get_args(AnyBody)))
NUMBERS = ["0", "-1", "7", "1.0", "1e2", "-0", "0.5", "1e999", "NaN", "Infinity", "true", "null", '"5"', "[]",
           "{}", "1" * 18, "1" * 19, "1" * 40, "-" + "9" * 19, "1" * 19 + ".5", "1000001",
           "1000000000000001", "01"]  # fmt: skip
TEXTS = ['"a"', '"\\ud800"', '"\\u0000"', '"\x01"', '"\x7f"', '"\\u202e"', '"é"', f'"{"x" * 201}"', f'"{"é" * 200}"',
         f'"{"0" * 64}"', f'"{"0" * 64}\\n"', '"epoch"', '"phase"', '"train"', '"2026-01-31T12:00:00.000Z"',
         '"2026-01-31T12:00:00Z"', '"2026-01-31"', '"9999-01-31T12:00:00.000Z"', '"٣"']  # fmt: skip


def outcome(document: bytes) -> object:
    """The record that pydantic finds, or its message."""
    try:
        return records._decode_strange(document)
    except RecordDamagedError as error:
        return type(error), str(error)


def check(document: bytes) -> None:
    """The fast decoder finds the same record or nothing; together they find what pydantic does."""
    found = decode_typed(document)
    if found is not None:
        fast, slow = Record(*found), outcome(document)
        # Also the types: 1 is equal to 1.0.
        assert repr(fast) == repr(slow)
        assert fast == slow
    line = document[:-1] + b',"crc32":"%08x"}' % zlib.crc32(document[:-1])
    try:
        whole: object = decode_record(line)
    except RecordDamagedError as error:
        whole = type(error), str(error)
    assert repr(whole) == repr(outcome(document))
    check_scanned(line, whole)


def check_scanned(line: bytes, whole: object) -> None:
    """A phase that is scanned is the one that is decoded, and so is the head of every record."""
    found = Scanner("replica-0000-1").scan(line)
    if found is not None and found[2] is not None:
        (sequence, time_ms, monotonic_ms), _, _ = found
        replica, trial, phase = found[2]
        body = PhaseBegan(replica=replica, trial=None if trial < 0 else trial, phase=PHASES[phase])  # type: ignore[arg-type]
        assert isinstance(whole, Record)
        assert whole == Record("replica-0000-1", sequence, time_ms, monotonic_ms, body, whole.previous)


@settings(max_examples=examples(200))
@given(BODIES, st.integers(0, 10**6), st.integers(0, 4 * 10**12), st.booleans())
def test_every_body_is_decoded_as_it_was_encoded(body: AnyBody, sequence: int, time_ms: int, chained: bool) -> None:
    record = Record("replica-0000-1", sequence, time_ms, time_ms, body, "0" * 64 if chained else None)
    try:
        line = encode_record(record)
    except (ValueError, TypeError):  # half a surrogate pair has no UTF-8
        return
    check(line[: -len(b',"crc32":"01234567"}\n')] + b"}")


@settings(max_examples=examples(400))
@given(st.data())
def test_a_changed_line_is_decoded_alike_or_left_to_pydantic(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(USUAL))
    line = encode_record(Record("replica-0000-1", 3, 1_700_000_000_000, 5, body, "0" * 64)).decode()
    document = json.loads(line)
    document.pop("crc32")
    items = {True: list(document.items()), False: list(document.pop("data").items())}
    pairs = {
        inner: [(json.dumps(key), json.dumps(value)) for key, value in part if key != "data"]
        for inner, part in items.items()
    }
    for _ in range(data.draw(st.integers(0, 3))):
        part = pairs[data.draw(st.booleans())]
        key = data.draw(st.sampled_from([*(key for key, _ in part), '"type"', '"x"', '"trial"', '"writer"']))
        place = data.draw(st.integers(0, len(part)))
        match data.draw(st.sampled_from(["add", "replace", "remove"])):
            case "add":  # perhaps a second time
                part.insert(place, (key, data.draw(st.sampled_from(NUMBERS + TEXTS))))
            case "replace":
                value = data.draw(st.sampled_from(NUMBERS + TEXTS))
                part[:] = [(name, value if name == key else old) for name, old in part]
            case _:
                part[:] = [item for item in part if item[0] != key]
    inner = "{" + ",".join(f"{key}:{value}" for key, value in pairs[False]) + "}"
    colon = data.draw(st.sampled_from([":", " : ", ":\t"]))
    outer = [*pairs[True][:5], ('"data"', inner), *pairs[True][5:]]
    check(("{" + ",".join(f"{key}{colon}{value}" for key, value in outer) + "}").encode(errors="surrogatepass"))


@settings(max_examples=examples(200))
@given(st.sampled_from([0, 1, 2]), st.integers(0, 500), st.binary(min_size=1, max_size=3))
@example(0, 20, b"\xff")
@example(0, 20, b"\n")
def test_changed_bytes_are_decoded_alike_or_left_to_pydantic(which: int, place: int, change: bytes) -> None:
    line = encode_record(Record("replica-0000-1", 3, 1_700_000_000_000, 5, USUAL[which], "0" * 64))
    document = line[: -len(b',"crc32":"01234567"}\n')] + b"}"
    place %= len(document) - len(change)
    check(document[:place] + change + document[place + len(change) :])


@pytest.mark.parametrize("trial", [None, 0, 10**9 - 1])
def test_usual_phases_are_scanned(trial: int | None) -> None:
    body = PhaseBegan(replica=1, trial=trial, phase="storage")
    line = encode_record(Record("replica-0000-1", 3, 1_700_000_000_000, -5, body, LINK))[:-1]
    found = Scanner("replica-0000-1").scan(line)
    assert found is not None
    assert found[2] is not None
    check_scanned(line, decode_record(line))
    other = Scanner("replica-0001-1").scan(line)
    assert other == (found[0], None, None), "another writer's line is a damage"


def test_usual_lines_are_decoded_fast() -> None:
    for body in USUAL:
        line = encode_record(Record("replica-0000-1", 3, 1_700_000_000_000, 5, body, "0" * 64))
        assert decode_typed(line[: -len(b',"crc32":"01234567"}\n')] + b"}") is not None


@pytest.mark.parametrize("previous", ['"' + "0" * 63 + '"', "null", '"' + "G" * 64 + '"', '"' + "0" * 64 + '\\n"'])
def test_a_link_that_is_none_is_left_to_pydantic(previous: str) -> None:
    line = encode_record(Record("replica-0000-1", 3, 1_700_000_000_000, 5, USUAL[0], "0" * 64)).decode()
    document = line[: -len(',"crc32":"01234567"}\n')].replace('"' + "0" * 64 + '"', previous) + "}"
    assert decode_typed(document.encode()) is None
    check(document.encode())


@settings(max_examples=examples(60), deadline=None)
@given(BODIES)
@example(USUAL[1])
@example(USUAL[4])
def test_a_body_is_written_as_pydantic_writes_it(body: AnyBody) -> None:
    line = json.loads(encode_record(Record("w", 0, 0, 0, body, LINK)))
    expected = TypeAdapter(type(body)).dump_python(body, mode="json")
    written = {name: value for name, value in expected.items() if name in line["data"]}
    assert json.dumps(line["data"], sort_keys=True) == json.dumps(written, sort_keys=True), "as text: NaN is not NaN"
    assert expected.keys() - line["data"].keys() <= records._LATER
    if not isinstance(body, EpochCompleted | ProgressMade):
        assert list(line["data"]) == [name for name in expected if name in line["data"]]
