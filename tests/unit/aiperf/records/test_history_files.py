"""The history list: durable writers, complete readers, and damage that is never hidden."""

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aiperf.errors import RecordDamagedError, StorageError
from aiperf.records import history_files as history
from aiperf.records.bodies import PhaseBegan, ProgressMade, ReplicaReady, TrialEnded
from aiperf.records.chain import broken_links, first_link
from aiperf.records.cursor import Cursor, parse_cursor
from aiperf.records.history_files import HistoryReader, HistoryWriter
from aiperf.records.record import Record, decode_record, encode_record
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import Patience
from tests.support.hand_made import HandMadeRun, ManualClock


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    result = RunPaths(tmp_path)
    result.create()
    return result


def progress(trained: int) -> ProgressMade:
    return ProgressMade(trial=1, epoch=1, images_trained=trained, images_evaluated=0)


def test_what_is_written_is_read_once_and_in_order(paths: RunPaths) -> None:
    reader = HistoryReader(paths)
    with HistoryWriter(paths, "replica-0001", ManualClock()) as writer:
        written = [writer.append(progress(n)) for n in range(3)]
        assert list(reader.read_new().records) == written
        assert reader.read_new().records == ()
        written.append(writer.append(TrialEnded(trial=1, reason="completed")))
        assert list(reader.read_new().records) == written[3:]
    assert [record.sequence for record in written] == [0, 1, 2, 3]


def test_a_file_that_this_node_does_not_list_yet_is_read_if_a_primary_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = HandMadeRun(tmp_path / "run").at(0).release(100).at(1).start_trial(1).at(5).epoch(1, 1)
    run.tell(ReplicaReady(replica=2, writer="../logs/replica-0002-1", accelerators=0, clock_offset_ms=0))
    listed = RunPaths.history_files
    records = HistoryReader(run.paths).read_new().records

    def without_replicas(paths: RunPaths, role: str = "*") -> list[Path]:
        return [file for file in listed(paths, role) if file.name.startswith("primary")]

    monkeypatch.setattr(RunPaths, "history_files", without_replicas)
    late = HistoryReader(run.paths)
    assert late.read_new().records == records
    assert late.read_new().records == ()
    assert {record.writer for record in records} == {"primary-1", "replica-0000-1"}
    assert HistoryReader(run.paths, roles=("primary",)).cursor().heads.keys() <= {"primary-1"}


def test_a_restarted_writer_takes_a_file_of_its_own(paths: RunPaths) -> None:
    names = []
    for _ in range(3):
        with HistoryWriter(paths, "primary", ManualClock()) as writer:
            names.append(writer.name)
    assert names == ["primary-1", "primary-2", "primary-3"]


def test_a_file_that_is_gone_when_its_writer_ends_is_written_again(paths: RunPaths) -> None:
    with HistoryWriter(paths, "primary", ManualClock()) as writer:
        writer.append(progress(1))
        paths.history_file(writer.name).unlink()
    assert len(HistoryReader(paths).read_new().records) == 1


def test_a_torn_last_line_is_left_for_later_at_every_byte(paths: RunPaths) -> None:
    first, second = (encode_record(_record(n)) for n in range(2))
    file = paths.history_file("replica-0000-1")
    for cut in range(len(second)):
        reader = HistoryReader(paths)
        file.write_bytes(first + second[:cut])
        batch = reader.read_new()
        assert [record.sequence for record in batch.records] == [0]
        assert batch.damages == ()
        assert reader.unfinished() == (["replica-0000-1.jsonl"] if cut else [])
        file.write_bytes(first + second)
        assert [record.sequence for record in reader.read_new().records] == [1]


def _record(sequence: int, writer: str = "replica-0000-1") -> Record:
    return Record(writer, sequence, 1_700_000_000_123, 5, progress(sequence))


@given(st.data())
def test_any_flipped_byte_is_found(data: st.DataObject) -> None:
    line = bytearray(encode_record(_record(7)))
    place = data.draw(st.integers(0, len(line) - 2))
    line[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RecordDamagedError):
        decode_record(bytes(line))


def test_damage_is_reported_with_its_place_and_the_rest_is_read(paths: RunPaths) -> None:
    lines = [encode_record(_record(n)) for n in range(3)]
    lines[1] = lines[1].replace(b'"epoch":1', b'"epoch":2')
    paths.history_file("replica-0000-1").write_bytes(b"".join(lines))
    batch = HistoryReader(paths).read_new()
    assert [record.sequence for record in batch.records] == [0, 2]
    assert [str(damage) for damage in batch.damages] == [
        "history/replica-0000-1.jsonl line 2: the checksum does not fit: the line was changed or torn"
    ]


def test_a_record_in_a_foreign_file_and_a_newer_version_are_damage(paths: RunPaths) -> None:
    paths.history_file("replica-0009-1").write_bytes(encode_record(_record(0)))
    newer = encode_record(_record(0)).replace(b'{"version":1', b'{"version":3')
    paths.history_file("replica-0000-1").write_bytes(_with_checksum(newer))
    reasons = [damage.found for damage in HistoryReader(paths).read_new().damages]
    assert reasons[0] == "record version 3; this program reads versions 1 to 2"
    assert "replica-0000-1's, not this file's" in reasons[1]


def _with_checksum(line: bytes) -> bytes:
    import zlib

    head = line[: line.index(b',"crc32"')]
    return head + b',"crc32":"%08x"}\n' % zlib.crc32(head)


def test_a_failed_write_leaves_no_half_record(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    with HistoryWriter(paths, "primary", ManualClock()) as writer:
        writer.append(progress(0))
        real_write = os.write
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda fd, data: real_write(fd, data[:10]))
            with pytest.raises(StorageError, match="short write"):
                writer.append(progress(1))
        writer.append(progress(2))
    batch = HistoryReader(paths).read_new()
    assert batch.damages == ()
    assert [(r.sequence, r.body.images_trained) for r in batch.records if isinstance(r.body, ProgressMade)] == [
        (0, 0),
        (1, 2),
    ]


def test_records_carry_the_given_moment(paths: RunPaths) -> None:
    with HistoryWriter(paths, "primary", ManualClock(500)) as writer:
        record = writer.append(PhaseBegan(replica=0, trial=None, phase="idle"), at_monotonic_ms=321)
    assert (record.time_ms, record.monotonic_ms) == (321, 321)
    assert decode_record(encode_record(record)) == record


def test_a_full_disk_is_waited_for_and_nothing_is_damaged(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []
    real_write, file = os.write, paths.history_file("primary-1")

    def full_at_first(descriptor: int, data: bytes) -> int:
        if Path(f"/proc/self/fd/{descriptor}").readlink() != file:  # threads of earlier tests write, too
            return real_write(descriptor, data)
        attempts.append(real_write(descriptor, data[:7]) if len(attempts) < 3 else real_write(descriptor, data))
        if len(attempts) <= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return attempts[-1]

    monkeypatch.setattr(os, "write", full_at_first)
    with HistoryWriter(paths, "primary", ManualClock(), Patience(60)) as writer:
        writer.append(progress(0))
        writer.append(progress(1))
    monkeypatch.undo()
    batch = HistoryReader(paths).read_new()
    assert batch.damages == ()
    assert len(batch.records) == 2
    assert [r.getMessage() for r in caplog.records if str(file) in r.getMessage()] == [
        f"storage refuses ({file}: No space left on device); trying again for 60 s",
        f"storage: the wait for {file} is over",
    ]


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.ETIMEDOUT, errno.EACCES])
def test_what_does_not_pass_is_an_error_in_the_end(paths: RunPaths, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(code, "refused")

    with HistoryWriter(paths, "primary", ManualClock(), Patience(0.003)) as writer:
        monkeypatch.setattr(os, "write", refuse)
        with pytest.raises(StorageError, match="refused"):
            writer.append(progress(0))
        monkeypatch.undo()
        writer.append(progress(1))
    assert len(HistoryReader(paths).read_new().records) == 1


@pytest.fixture
def refusing(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A file with one record, and the errors of the next attempts to open any file of the run."""
    with HistoryWriter(paths, "primary", ManualClock()) as writer:
        writer.append(progress(0))
    errors, real_open = list[int](), Path.open

    def opened(self: Path, *arguments: Any, **more: Any) -> Any:
        if errors and self.is_relative_to(paths.root):  # threads of other tests may open files, too
            code = errors.pop(0)
            raise OSError(code, os.strerror(code))
        return real_open(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", opened)
    return errors


def test_a_file_that_is_listed_and_not_there_yet_is_read_later(paths: RunPaths, refusing: list[int]) -> None:
    reader = HistoryReader(paths)
    refusing.append(errno.ENOENT)
    assert reader.read_new() == history.Batch((), ())
    assert len(reader.read_new().records) == 1


def test_a_file_with_a_stale_handle_is_opened_again(paths: RunPaths, refusing: list[int]) -> None:
    refusing.append(errno.ESTALE)
    assert len(HistoryReader(paths).read_new().records) == 1


def test_a_file_that_stays_stale_is_an_error_and_not_an_empty_history(paths: RunPaths, refusing: list[int]) -> None:
    refusing += [errno.ESTALE] * 2
    with pytest.raises(OSError, match="Stale file handle"):
        HistoryReader(paths).read_new()


def test_a_folder_that_cannot_be_read_is_an_error_and_not_an_empty_history(
    paths: RunPaths, refusing: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    with monkeypatch.context() as patches:
        patches.setattr(os, "listdir", refuse)
        patches.setattr(os, "scandir", refuse)
        with pytest.raises(PermissionError):
            HistoryReader(paths).read_new()
    paths.history.rename(paths.root / "elsewhere")
    assert paths.history_files() == []


def broken(lines: list[bytes], first: str) -> list[int]:
    """The numbers of lines with a link that is not the hash before."""
    hashes = [hashlib.sha256(line).hexdigest() for line in lines]
    return [number for number, _, _ in broken_links(lines, hashes, first)]


def test_each_record_carries_the_hash_of_the_one_before(paths: RunPaths) -> None:
    paths.run.write_bytes(b"{}")
    with HistoryWriter(paths, "primary", ManualClock()) as writer:
        assert writer.head is None
        records = [writer.append(progress(n)) for n in range(3)]
        head = writer.head
    lines = paths.history_file("primary-1").read_bytes().splitlines()
    hashes = [hashlib.sha256(line).hexdigest() for line in lines]
    assert [record.previous for record in records] == [hashlib.sha256(b"{}").hexdigest(), *hashes[:2]]
    assert head == (2, hashes[2])
    assert [decode_record(line) for line in lines] == records
    assert broken(lines, first_link(paths)) == []
    assert broken([lines[0], lines[2]], first_link(paths)) == [2]
    paths.run.write_bytes(b"{ }")
    assert broken(lines, first_link(paths)) == [1]


def test_a_file_without_a_chain_may_not_gain_one_in_the_middle(paths: RunPaths) -> None:
    old = [encode_record(_record(n))[:-1] for n in range(2)]
    link = hashlib.sha256(old[1]).hexdigest()
    new = encode_record(replace(_record(2), previous=link))[:-1]
    assert broken(old, "0" * 64) == []
    assert broken([*old, new], "0" * 64) == [3]


def test_a_link_and_a_version_go_together() -> None:
    line = encode_record(replace(_record(7), previous="a" * 64))
    with pytest.raises(RecordDamagedError, match="has a link"):
        decode_record(_with_checksum(line.replace(b'{"version":2', b'{"version":1')))
    with pytest.raises(RecordDamagedError, match="has no link"):
        decode_record(_with_checksum(encode_record(_record(7)).replace(b'{"version":1', b'{"version":2')))


def test_a_cursor_names_what_was_read(paths: RunPaths) -> None:
    reader = HistoryReader(paths)
    with HistoryWriter(paths, "primary", ManualClock()) as first, HistoryWriter(paths, "replica-0000", ManualClock()):
        first.append(progress(0))
        reader.read_new()
        cursor = reader.cursor()
        assert cursor.heads == {"primary-1": first.head}
        first.append(progress(1))
        assert reader.cursor() == cursor, "what was not read yet is not in it"
        reader.read_new()
        assert reader.cursor().heads == {"primary-1": first.head}
    assert parse_cursor(cursor.text) == {"primary-1": 0}


def test_a_long_cursor_is_short_as_text() -> None:
    heads = {f"replica-{number:04d}-1": (number * 37, "0" * 64) for number in range(512)}
    text = Cursor(heads).text
    assert len(text) < 8 * len(heads)
    assert parse_cursor(text) == {writer: sequence for writer, (sequence, _) in heads.items()}


@pytest.mark.parametrize("text", ["a", "a:b", "a:1 a:2", "z!", "zAAAA", "a:" + "1" * 30])
def test_what_is_not_a_cursor_is_damage(text: str) -> None:
    with pytest.raises(RecordDamagedError, match="is not a cursor"):
        parse_cursor(text)
