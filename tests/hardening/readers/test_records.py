"""Lines of histories, manifests and files of any kind: read, or refused in a short message."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from aiperf.config.settings import load_config
from aiperf.errors import RecordDamagedError, UsageError
from aiperf.facts import LAST_MS, LONGEST_MS
from aiperf.network.json_files import from_json
from aiperf.records.bodies import EpochCompleted, RunReleased
from aiperf.records.cursor import parse_cursor
from aiperf.records.record import Record, decode_record, encode_record
from aiperf.run_directory.checksums import is_broken, is_sealed, sealed
from aiperf.run_directory.manifest import Manifest, read_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.untrusted.reading import Limits, json_object, parse_outside, read_outside, shortened
from aiperf.untrusted.text import has_control
from analysis.reading.history import read_writer
from analysis.reading.nodes import read_system
from analysis.reading.profile import read_profile
from analysis.results.source import read_report_file
from tests.support.fuzz import examples, refusal

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([10**18, 10**19, -1, 10**15 + 1, "\ud800", "\0", "x" * 300]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
EPOCH = EpochCompleted(
    trial=1, epoch=2, images_trained=3, images_evaluated=4, correct=1, loss=1.0, validation_loss=1.0, learning_rate=0.1
)
LINE: dict[str, Any] = json.loads(encode_record(Record("replica-0000-1", 3, 1_700_000_000_000, 5, EPOCH, "0" * 64)))


def summed(document: dict[str, Any]) -> bytes:
    head = json.dumps({key: value for key, value in document.items() if key != "crc32"}, separators=(",", ":"))
    data = head.encode(errors="surrogatepass")[:-1]
    return data + b',"crc32":"%08x"}' % zlib.crc32(data)


@settings(max_examples=examples(150))
@given(st.data())
def test_records_with_anything_in_any_field(data: st.DataObject) -> None:
    document = json.loads(json.dumps(LINE))
    for _ in range(data.draw(st.integers(1, 3))):
        place = document["data"] if data.draw(st.booleans()) and isinstance(document["data"], dict) else document
        place[data.draw(st.sampled_from([*place, "type", "x"]))] = data.draw(JSON)
    line = summed(document)
    try:
        found = decode_record(line)
    except RecordDamagedError as error:
        assert len(str(error)) < 1000
        assert str(error).isprintable()
    else:
        assert 0 <= found.time_ms <= LAST_MS
        decode_record(encode_record(found).removesuffix(b"\n"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("images_trained", -1),
        ("images_trained", 10**15 + 1),
        ("correct", -1),
        ("epoch", -1),
        ("epoch", 10**6 + 1),
        ("trial", -1),
        ("images_evaluated", -(10**17)),
        ("evidence", "x" * 300),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(field: str, value: object) -> None:
    document = {**LINE, "data": {**LINE["data"], field: value}}
    with pytest.raises(RecordDamagedError, match=f"a record cannot say this: {field}"):
        decode_record(summed(document))


def test_the_longest_run_is_a_thousand_hours(tmp_path: Path) -> None:
    for duration_ms, fits in ((LONGEST_MS, True), (LONGEST_MS + 1, False)):
        line = encode_record(Record("primary-1", 0, 0, 0, RunReleased(duration_ms=duration_ms, ready=())))
        assert (refusal(lambda line=line: decode_record(line)) == "") == fits  # type: ignore[misc]
        assert (refusal(lambda ms=duration_ms: load_config(overrides={"run.duration": ms / 1000})) == "") == fits  # type: ignore[misc]


@settings(max_examples=examples(60))
@given(content=st.binary(max_size=400), count=st.integers(0, 3))
def test_histories_of_any_bytes(content: bytes, count: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "replica-0000-1.jsonl"
    file.write_bytes((content + b"\n") * count + content)
    found = read_writer(file, None)
    assert found.lines.count == file.read_bytes().count(b"\n")


@settings(max_examples=examples(80))
@given(text=st.text(max_size=80) | st.binary(max_size=60).map(lambda data: "z" + data.decode("latin-1")))
def test_cursors_of_any_kind(text: str) -> None:
    assert len(refusal(lambda: parse_cursor(text))) < 1000


MANIFEST = json.loads(Manifest(config=load_config(overrides={"run.dataset": "digits"})).model_dump_json())


@settings(max_examples=examples(80))
@given(data=st.data())
def test_manifests_with_anything_in_any_place(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    document = json.loads(json.dumps(MANIFEST))
    section = document["config"][data.draw(st.sampled_from(sorted(document["config"])))]
    place = data.draw(st.sampled_from([document, document["config"], *([section] if section else [])]))
    if isinstance(place, dict):
        place[data.draw(st.sampled_from([*place, "x"]))] = data.draw(JSON)
    root = tmp_path_factory.getbasetemp()
    (root / "run.json").write_bytes(json.dumps(document).encode())
    refusal(lambda: read_manifest(RunPaths(root)))


READERS: dict[str, Callable[[Path], object]] = {
    "run.json": lambda file: read_manifest(RunPaths(file.parent)),
    "report.json": read_report_file,
    "profile.json": read_profile,
    "architecture.json": lambda file: from_json(file.read_text(errors="replace"), str(file)),
    "outside.json": lambda file: read_outside(file, json_object),
}
CONTENTS = {
    "nothing": b"",
    "a NUL": b"\0",
    "no UTF-8": b"\xff\xfe",
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 50_000,
    "a number of 10,000 digits": b'{"a": ' + b"9" * 10_000 + b"}",
    "a float beyond all": b'{"a": 1e999999}',
    "a list": b"[1]",
    "text": b'"' + b"x" * 100_000 + b'"',
    "a long key": b'{"' + b"k" * 100_000 + b'": 1}',
    "many keys": b"{" + b",".join(b'"k%d": 1' % n for n in range(20_000)) + b"}",
    "an escape": b'{"\x1b[2J": 1}',
    "other rules": json.dumps({"rules_version": "\x1b[2J" * 10_000}).encode(),
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_json_refuses_in_words(reader: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / reader
    file.write_bytes(CONTENTS[name])
    message = refusal(lambda: READERS[reader](file))
    if reader != "outside.json":
        assert message
    assert message.isprintable()


def test_nodes_of_any_kind_are_none(tmp_path: Path) -> None:
    for content in CONTENTS.values():
        (tmp_path / "system.json").write_bytes(content)
        assert read_system(RunPaths(tmp_path)) == {}


@pytest.mark.parametrize(
    "error",
    [
        RecursionError(),
        MemoryError(),
        OverflowError("x" * 9999),
        KeyError("k"),
        ValueError("\x1b[2J\n"),
        ZeroDivisionError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        NotImplementedError(),
        AttributeError("a"),
        AssertionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_parser_raises_is_one_line(error: Exception, tmp_path: Path) -> None:
    def parse(data: bytes) -> None:
        raise error

    (tmp_path / "file").write_bytes(b"{}")
    for call in (
        lambda: read_outside(tmp_path / "file", parse, error=UsageError, what="a thing"),
        lambda: parse_outside(b"{}", str(tmp_path / "file"), parse, error=UsageError, what="a thing"),
    ):
        message = refusal(call)
        assert message.startswith(f"{tmp_path / 'file'}: is not a thing: ")
        assert message.isprintable()
        assert len(message) > len(f"{tmp_path / 'file'}: is not a thing: ")


def test_size_and_depth_are_limits(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b'{"a": [[1]]}')
    for limits, words in ((Limits(size=11), "more than 11 bytes"), (Limits(depth=2), "nested more than 2 deep")):
        assert words in refusal(lambda limits=limits: read_outside(tmp_path / "file", json_object, limits))  # type: ignore[misc]
    assert read_outside(tmp_path / "file", json_object, Limits(size=12, depth=3)) == {"a": [[1]]}
    assert json_object(b'{"a": "[[[["}') == parse_outside(b'{"a": "[[[["}', "x", json_object, Limits(depth=1))
    assert "cannot be read" in refusal(lambda: read_outside(tmp_path / "none", json_object))
    assert "cannot be read" in refusal(lambda: read_outside(tmp_path, json_object))


@settings(max_examples=examples(100))
@given(st.text(max_size=400))
def test_text_of_others_is_shown_on_one_line(text: str) -> None:
    assert not has_control(shortened(text))
    assert len(shortened(text)) <= 310


@settings(max_examples=examples(60))
@given(
    st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8), min_size=1),
    st.sampled_from([None, 2]),
    st.data(),
)
def test_any_flipped_bit_of_a_sealed_object_is_found(
    document: dict[str, Any], indent: int | None, data: st.DataObject
) -> None:
    made = sealed(document, indent)
    assert is_sealed(made) and not is_broken(made + b"\n")
    assert {**json.loads(made), "crc32": None} == {**document, "crc32": None}
    changed = bytearray(made)
    changed[data.draw(st.integers(0, len(made) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    if not is_broken(bytes(changed)):
        with pytest.raises(ValidationError):
            TypeAdapter(dict[str, Any]).validate_json(bytes(changed))
