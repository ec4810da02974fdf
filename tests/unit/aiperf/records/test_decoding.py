"""Lines of the history: what is written is read, and what is not a record is refused in words."""

import json
import math
import zlib
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.errors import RecordDamagedError, RecordOutOfRangeError
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
from aiperf.records.record import Record, decode_record, encode_record
from tests.support.fuzz import examples

LINK = "0" * 64
EPOCH = EpochCompleted(
    trial=1,
    epoch=2,
    images_trained=3,
    images_evaluated=4,
    correct=1,
    loss=1.0,
    validation_loss=1.5,
    learning_rate=0.1,
    evidence=LINK,
    weights=LINK,
)
BODIES: list[tuple[AnyBody, str]] = [
    (PhaseBegan(replica=1, trial=None, phase="idle"), '{"type":"phase","replica":1,"trial":null,"phase":"idle"}'),
    (ProgressMade(trial=1, epoch=2, images_trained=3, images_evaluated=0),
     '{"type":"progress","trial":1,"epoch":2,"images_trained":3,"images_evaluated":0}'),
    (EPOCH,
     '{"type":"epoch","trial":1,"epoch":2,"images_trained":3,"images_evaluated":4,"correct":1,"loss":1.0,'
     f'"validation_loss":1.5,"learning_rate":0.1,"evidence":"{LINK}","weights":"{LINK}"}}'),
    (msgspec.structs.replace(EPOCH, state=LINK, resumed=LINK),
     '{"type":"epoch","trial":1,"epoch":2,"images_trained":3,"images_evaluated":4,"correct":1,"loss":1.0,'
     f'"validation_loss":1.5,"learning_rate":0.1,"evidence":"{LINK}","weights":"{LINK}","state":"{LINK}",'
     f'"resumed":"{LINK}"}}'),
    (msgspec.structs.replace(EPOCH, input_s=0.125, exchange_s=0.25, correct_trained=2),
     '{"type":"epoch","trial":1,"epoch":2,"images_trained":3,"images_evaluated":4,"correct":1,"loss":1.0,'
     f'"validation_loss":1.5,"learning_rate":0.1,"evidence":"{LINK}","weights":"{LINK}","input_s":0.125,"exchange_s":0.25,'
     '"correct_trained":2}'),
    (msgspec.structs.replace(EPOCH, test_images=9, test_measures={"accuracy": 0.5}),
     '{"type":"epoch","trial":1,"epoch":2,"images_trained":3,"images_evaluated":4,"correct":1,"loss":1.0,'
     '"validation_loss":1.5,"learning_rate":0.1,"evidence":"' + LINK + '","test_images":9,'
     '"test_measures":{"accuracy":0.5},"weights":"' + LINK + '"}'),
    (GroupExchanged(trial=1, epoch=2, group=1, updates=3, images=96, staleness=(1, 0, 2), computing_s=1e16,
                    group_s=0.0, waiting_s=1e-05, bytes_exchanged=1 << 40),
     '{"epoch":2,"group":1,"updates":3,"images":96,"staleness":[1,0,2],"computing_s":1e+16,"group_s":0.0,'
     '"waiting_s":1e-05,"bytes_exchanged":1099511627776,"type":"exchanged","trial":1}'),
    (ServerServed(trial=1, epoch=2, server=0, updates=6, busy_share=0.125),
     '{"epoch":2,"server":0,"updates":6,"busy_share":0.125,"type":"served","trial":1}'),
    (TrialStarted(trial=3, replica=1, round=2, architecture="a", parent="\u00e9", morphs=({"kind": "Widen", "by": 2},),
                  hyperparameters={"batch_size": 4, "momentum": 0.9, "optimiser": "sgd"}, epochs=20),
     '{"type":"trial_started","trial":3,"replica":1,"round":2,"architecture":"a","parent":"\\u00e9",'
     '"morphs":[{"kind":"Widen","by":2}],"point":0,"base":null,"weights_from":null,'
     '"hyperparameters":{"batch_size":4,"momentum":0.9,"optimiser":"sgd"},"epochs":20,"precision":"float32",'
     '"resumes":null}'),
    (RunReleased(duration_ms=3_600_000, ready=(0, 1)), '{"type":"run_released","duration_ms":3600000,"ready":[0,1]}'),
    (JobIssued(trial=1, replica=2, round=3, seed=4),
     '{"type":"job_issued","trial":1,"replica":2,"round":3,"seed":4,"point":0,"base":null,"resumes":null}'),
    (TrialBuilt(trial=1, architecture="a", compute={"bfloat16": 54}, devices=("H200",), framework="f",
                source_hash="s", environment={"TF_X": "1"}),
     '{"architecture":"a","compute":{"bfloat16":54},"devices":["H200"],"framework":"f","source_hash":"s",'
     '"environment":{"TF_X":"1"},"type":"trial_built","trial":1}'),
]  # fmt: skip
"""A body of each form, and how every version has written it."""


def sealed(document: str | bytes) -> bytes:
    """A line of a document without its last brace."""
    head = document.encode(errors="surrogatepass") if isinstance(document, str) else document
    return head + b',"crc32":"%08x"}' % zlib.crc32(head)


def line_of(body: str, outer: str = "", version: int = 2) -> bytes:
    link = f',"previous":"{LINK}"' if version == 2 else ""
    return sealed(
        f'{{"version":{version},"writer":"replica-0000-1","sequence":3,"time":"2026-01-31T12:00:00.000Z",'
        f'"monotonic_ms":5,"data":{body}{link}{outer}'
    )


@pytest.mark.parametrize(("body", "text"), BODIES, ids=lambda item: "" if isinstance(item, str) else item.type)
def test_a_body_is_written_as_ever_and_read_again(body: AnyBody, text: str) -> None:
    record = Record("replica-0000-1", 3, 1_769_860_800_000, 5, body, LINK)
    line = encode_record(record)
    assert line == line_of(text) + b"\n"
    assert repr(decode_record(line)) == repr(record), "also the types: 1 is equal to 1.0"


@settings(max_examples=examples(200))
@given(st.one_of(*(st.from_type(kind) for kind in get_args(AnyBody))), st.integers(0, 4 * 10**12), st.booleans())
def test_every_body_is_read_as_it_was_written_or_refused(body: AnyBody, time_ms: int, chained: bool) -> None:
    record = Record("replica-0000-1", 0, time_ms, time_ms, body, LINK if chained else None)
    try:
        line = encode_record(record)
    except (ValueError, TypeError):  # half a surrogate pair has no UTF-8
        return
    try:
        assert repr(decode_record(line)) == repr(record)
    except RecordDamagedError:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(msgspec.to_builtins(body), type(body))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_a_number_is_read_for_a_check_to_find(value: float) -> None:
    body = msgspec.structs.replace(EPOCH, loss=value, measures={"a": value})
    line = encode_record(Record("replica-0000-1", 3, 0, 5, body, LINK))
    assert repr(decode_record(line).body) == repr(body)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (line_of('{"type":"phase","replica":1,"trial":null,"phase":"dream"}'), "data.phase: Invalid enum value"),
        (line_of('{"type":"dream"}'), "data.type: Invalid value 'dream'"),
        (line_of('{"type":"served","trial":1}'), "data: Object missing required field `epoch`"),
        (line_of('{"type":"replica_lost","replica":1,"reason":5}'), "data.reason: Expected `str`, got `int`"),
        (line_of('{"type":"replica_lost","replica":1,"reason":"","x":1}'), "data: Object contains unknown field `x`"),
        (line_of('{"type":"replica_lost","replica":"1","reason":""}'), "data.replica: Expected `int`, got `str`"),
        (line_of('{"type":"replica_lost","replica":1,"reason":"\\ud800x"}'), "is not a record: "),
        (line_of('{"type":"epoch","loss":NaN}'), "data: Object missing required field"),
        (sealed("{NaN"), "JSON is malformed"),
        (line_of("[" * 100_000), "is not a record: "),
        (sealed("[]"), "is not a record: "),
        (sealed(b'{"version":2,"writer":"\xff"'), "is not a record: "),
        (line_of("{}", version=3), "record version 3; this program reads versions 1 to 2"),
        (line_of(BODIES[0][1], version=1).replace(b'"version":1', b'"version":2'), "the checksum does not fit"),
        (line_of(BODIES[0][1])[:-1], "does not end with a checksum"),
    ],
)
def test_what_is_not_a_record_is_refused_with_its_place(line: bytes, says: str) -> None:
    with pytest.raises(RecordDamagedError) as caught:
        decode_record(line)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"trial": -5}, "trial is -5; it must be at least 0"),
        ({"epoch": 10**7}, "epoch is 10000000; it must be at most 1000000"),
        ({"images_trained": 10**400}, "images_trained is 1"),
        ({"evidence": "x" * 201}, "evidence has more than 200 characters"),
    ],
)
def test_a_value_that_no_run_can_reach_is_refused(changed: dict[str, Any], says: str) -> None:
    line = encode_record(Record("replica-0000-1", 3, 0, 5, msgspec.structs.replace(EPOCH, **changed), LINK))
    with pytest.raises(RecordOutOfRangeError, match=f"a record cannot say this: {says}"):
        decode_record(line)


@pytest.mark.parametrize("time", ["2026-01-31", "9999-01-31T12:00:00.000Z", "1900-01-31T12:00:00.000Z", "soon"])
def test_a_time_that_cannot_be_is_refused(time: str) -> None:
    line = line_of(BODIES[0][1])[: -len(',"crc32":"01234567"}')].decode()
    with pytest.raises(RecordDamagedError):
        decode_record(sealed(line.replace("2026-01-31T12:00:00.000Z", time)))


@pytest.mark.parametrize("link", ['"' + "0" * 63 + '"', "null", '"' + "G" * 64 + '"', '"' + "0" * 64 + '\\n"'])
def test_a_link_that_is_no_hash_is_refused(link: str) -> None:
    line = line_of(BODIES[0][1])[: -len(',"crc32":"01234567"}')].decode()
    with pytest.raises(RecordDamagedError, match="previous"):
        decode_record(sealed(line.replace(f'"{LINK}"', link)))


@settings(max_examples=examples(200))
@given(st.sampled_from(BODIES), st.integers(0, 500), st.binary(min_size=1, max_size=3))
def test_changed_bytes_are_a_record_or_refused(body: tuple[AnyBody, str], place: int, change: bytes) -> None:
    document = line_of(body[1])[: -len(b',"crc32":"01234567"}')]
    place %= len(document) - len(change)
    try:
        found = decode_record(sealed(document[:place] + change + document[place + len(change) :]))
    except RecordDamagedError as error:
        assert json.dumps(str(error)).isprintable()
    else:
        assert repr(decode_record(encode_record(found))) == repr(found)
