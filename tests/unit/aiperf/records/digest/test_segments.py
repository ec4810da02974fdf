"""Segments of a digest: what a reader takes of them, and what it refuses."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiperf.errors import DigestDamagedError
from aiperf.records.digest import reader as reader_module
from aiperf.records.digest import writer as writer_module
from aiperf.records.digest.entries import Opened, Over, decode_entry, encode_entry
from aiperf.records.digest.reader import DigestReader
from aiperf.records.digest.writer import DigestWriter
from aiperf.run_directory.paths import RunPaths, digest_segment, digests_of


def over(trial: int) -> Over:
    return Over(trial=trial, how="completed", epochs=(1, 2), qualities=(0.1, None))


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reader_module, writer_module):
        monkeypatch.setattr(module, "SEGMENT_ENTRIES", 3)


OPENED: list[str] = []
sys.addaudithook(lambda event, args: OPENED.append(str(args[0])) if event in ("open", "os.listdir") else None)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The files that the block opens, and the folders that it lists."""
    OPENED.clear()
    found: list[str] = []
    yield found
    found += OPENED


@pytest.mark.usefixtures("short_segments")
def test_a_reader_sees_all_entries_in_order_whenever_it_looks(paths: RunPaths) -> None:
    writer, reader = DigestWriter(paths, "primary-1"), DigestReader(paths, "primary-1")
    seen = [line.entry for line in reader.read_new()]
    for trial in range(1, 9):
        writer.put(over(trial))
        if trial % 2 == 0:
            seen += [line.entry for line in reader.read_new()]
    assert seen == [Opened(primary="primary-1"), *map(over, range(1, 9))]
    assert sorted(file.name for file in (digests_of(paths) / "primary-1").iterdir()) == [
        "000001.jsonl",
        "000002.jsonl",
        "000003.jsonl",
    ]
    assert reader.cursor() == cursor_at_end(paths)
    assert reader.cursor().text == "digest/primary-1:8"


def cursor_at_end(paths: RunPaths) -> object:
    again = DigestReader(paths, "primary-1")
    list(again.read_new())
    return again.cursor()


def test_a_look_with_nothing_new_opens_one_file_and_no_folder(paths: RunPaths) -> None:
    writer, reader = DigestWriter(paths, "primary-1", map(over, range(1, 50))), DigestReader(paths, "primary-1")
    assert len(list(reader.read_new())) == 50
    with opened() as files:
        assert list(reader.read_new()) == []
    # Other threads of this process may open files of their own.
    assert [name for name in files if name.startswith(str(paths.root))] == [str(digest_segment(paths, "primary-1", 1))]
    writer.close(0)


def test_a_torn_last_line_waits(paths: RunPaths) -> None:
    DigestWriter(paths, "primary-1").close(0)
    segment, line = digest_segment(paths, "primary-1", 1), encode_entry(over(7))
    whole = segment.read_bytes()
    for length in range(1, len(line)):
        segment.write_bytes(whole + line[:length])
        reader = DigestReader(paths, "primary-1")
        assert len(list(reader.read_new())) == 1
        segment.write_bytes(whole + line)
        assert [found.entry for found in reader.read_new()] == [over(7)]


def test_the_hash_names_the_whole_prefix(paths: RunPaths, tmp_path: Path) -> None:
    DigestWriter(paths, "primary-1", [over(1), over(2)]).close(0)
    other = RunPaths(tmp_path / "other")
    other.root.mkdir()
    DigestWriter(other, "primary-1", [over(3), over(2)]).close(0)
    one, two = (list(DigestReader(run, "primary-1").read_new()) for run in (paths, other))
    assert one[0].hash == two[0].hash
    assert one[2].entry == two[2].entry
    assert one[2].hash != two[2].hash


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b'"trial":1', b'"trial":9', 1),
        lambda data: data[data.index(b"\n") + 1 :],
        lambda data: data[:10],
        lambda data: data.replace(b"primary-1", b"primary-2"),
        lambda data: data + encode_entry(Opened(primary="primary-1")),
        lambda data: data + encode_entry(Over(trial=4, how="lost", epochs=(1,))),
    ],
)
def test_damage_is_reported_and_what_was_read_before_stays(paths: RunPaths, damage: object) -> None:
    writer, reader = DigestWriter(paths, "primary-1"), DigestReader(paths, "primary-1")
    assert len(list(reader.read_new())) == 1
    writer.put(over(1))
    segment = digest_segment(paths, "primary-1", 1)
    assert callable(damage)
    segment.write_bytes(damage(segment.read_bytes()))
    again = DigestReader(paths, "primary-1")
    with pytest.raises(DigestDamagedError):
        for found in (reader, again):
            list(found.read_new())
    assert again.cursor().heads.keys() <= {"digest/primary-1"}


def test_a_missing_digest_is_damage(paths: RunPaths) -> None:
    with pytest.raises(DigestDamagedError, match=r"000001\.jsonl is missing"):
        list(DigestReader(paths, "primary-1").read_new())


def test_an_entry_keeps_what_was_measured_exactly() -> None:
    entry = Over(
        trial=3,
        how="early_stop",
        predicted=0.1 + 0.2,
        epochs=(3, 4, 6),
        qualities=(1 / 3, None, 2 / 3),
    )
    assert decode_entry(encode_entry(entry)[:-1]) == entry
