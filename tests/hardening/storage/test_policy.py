"""The pieces that runs are made safe with: patience, whole appends, order, logs, the reserve."""

import asyncio
import errno
import logging
import os
import threading
from pathlib import Path

import pytest

from aiperf.__main__ import main
from aiperf.cli.command import Command
from aiperf.errors import EXIT_ENVIRONMENT, StorageError
from aiperf.files import append, can_write, write_atomically
from aiperf.records.bodies import PhaseBegan
from aiperf.records.history_files import HistoryReader, HistoryWriter
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.appended import AppendedFile
from aiperf.storage.durable import ANSWERS_OF_LINKS, publish
from aiperf.storage.logs import QuietHandler
from aiperf.storage.patience import FINAL, PATIENCE, Patience, may_pass
from aiperf.storage.reserve import Reserve
from aiperf.storage.storage_thread import InOrder
from tests.support.hand_made import ManualClock
from tests.support.runs import wait_for


def failing(times: int, code: int) -> list[int]:
    """A list that `action` shortens at every failure."""
    return [code] * times


KERNELS_OWN = range(512, 532)
"""Of the kernel alone (include/linux/errno.h); some file systems let them out."""

WAITED_FOR = (
    "EIO ENXIO EBADF EAGAIN ENOMEM EACCES EPERM EBUSY ENODEV ENFILE EMFILE ETXTBSY ENOSPC EROFS EDEADLK ENOLCK EPIPE "
    "EINTR EUCLEAN ENODATA ETIME ENONET ENOLINK ECOMM EPROTO EBADFD EREMOTE EREMOTEIO ENOBUFS ENOTCONN ESHUTDOWN "
    "ETIMEDOUT ECONNABORTED ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH ENETRESET EALREADY "
    "EINPROGRESS ESTALE EDQUOT ENOMEDIUM ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EBADMSG ERESTART"
)


def test_every_known_error_is_waited_for_or_final_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiperf.storage.patience.FIRST_PAUSE_S", 0.0)
    outcomes = {}
    for code in sorted({*errno.errorcode, *KERNELS_OWN}):
        left = failing(2, code)

        def action(left: list[int] = left) -> None:
            if left:
                raise OSError(left.pop(), "refused")

        try:
            Patience(60).attempt(action, "a file")
        except OSError as error:
            outcomes[code] = FINAL[error.errno or 0]
            assert len(left) == 1, "raised at once"
        else:
            outcomes[code] = ""
    assert {code for code, reason in outcomes.items() if reason} == FINAL.keys()
    assert [name for name in WAITED_FOR.split() if outcomes[getattr(errno, name)]] == []
    assert not may_pass(OSError("without a number"))


def test_too_many_open_files_are_waited_for_and_not_blamed_on_the_storage() -> None:
    reasons = list[str]()
    left = failing(1, errno.EMFILE)

    def action() -> None:
        if left:
            raise OSError(left.pop(), "Too many open files")

    Patience(60, reasons.append).attempt(action, "a file")
    assert reasons == ["a file: Too many open files (the limit of this process, ulimit -n, not the storage)", ""]


@pytest.mark.parametrize("code", [errno.ESHUTDOWN, errno.EPIPE])
def test_a_disk_that_is_away_is_no_terminal_that_was_closed(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(_: object) -> int:
        raise OSError(code, os.strerror(code), "/shared/run/run.json")

    command = Command(description="", example="", configure=lambda _: None, execute=execute)
    monkeypatch.setattr("aiperf.__main__.load_command", lambda _: command)
    assert main(["status"]) == EXIT_ENVIRONMENT
    assert capsys.readouterr().err == f"aiperf: /shared/run/run.json: {os.strerror(code)}\n"


@pytest.mark.parametrize("code", [errno.EIO, errno.ESHUTDOWN, errno.ENOTCONN, errno.EBADFD])
def test_a_file_whose_server_has_forgotten_it_is_opened_again(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AppendedFile(tmp_path / "file", tmp_path, tmp_path, Patience(60))
    file.append(b"one\n")
    forgotten, real = file._descriptor, os.write

    def write(descriptor: int, data: bytes) -> int:
        if descriptor == forgotten:
            raise OSError(code, "forgotten")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "close", lambda _: None)  # else the number is used again
    file.append(b"two\n")
    assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"


LINK_ERRORS = sorted({*errno.errorcode, *KERNELS_OWN} - ANSWERS_OF_LINKS)


def test_without_hard_links_files_are_published_and_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter(LINK_ERRORS)

    def refuse(*_: object) -> None:
        raise OSError(next(codes), "no links")

    monkeypatch.setattr(os, "link", refuse)
    for number in range(len(LINK_ERRORS) - 1):
        own, name = tmp_path / f"own-{number}", tmp_path / f"name-{number}"
        own.write_text("content")
        publish(own, name)
        assert (own.exists(), name.read_text()) == (False, "content")
    file = AppendedFile(tmp_path / "file", tmp_path, tmp_path, Patience(0))
    file.append(b"one\n")
    (tmp_path / "file").unlink()
    assert file.look()
    file.append(b"two\n")
    assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("code", [errno.EIO, errno.ESHUTDOWN, errno.ENOTCONN])
def test_what_may_pass_is_waited_for_and_reported(code: int) -> None:
    left, heard = failing(3, code), list[str]()

    def action() -> str:
        if left:
            raise OSError(left.pop(), "refused")
        return "done"

    assert Patience(60, heard.append).attempt(action, "a file") == "done"
    assert heard == ["a file: refused", ""]


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EISDIR, errno.ENAMETOOLONG])
def test_what_does_not_pass_is_raised_at_once(code: int) -> None:
    tries = []

    def action() -> None:
        tries.append(1)
        raise OSError(code, "never")

    with pytest.raises(OSError, match="never"):
        Patience(60).attempt(action, "a file")
    assert tries == [1]


def test_hurry_ends_a_wait() -> None:
    patience, waits = Patience(3600), threading.Event()

    def action() -> None:
        waits.set()
        raise OSError(errno.ENOSPC, "full")

    found: list[BaseException] = []

    def wait() -> None:
        try:
            patience.attempt(action, "a file")
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait()
    patience.hurry()
    thread.join()
    assert [str(error) for error in found] == ["[Errno 28] full"]


def test_a_short_append_is_undone_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sizes = os.write, [3, 100]

    def short(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[: sizes.pop(0)] if sizes else data)

    monkeypatch.setattr(os, "write", short)
    with PATIENCE.set(60):
        append(tmp_path / "folder" / "file", b"one\n" * 10)
        append(tmp_path / "folder" / "file", b"two\n")
    assert (tmp_path / "folder" / "file").read_bytes() == b"one\n" * 10 + b"two\n"


def test_a_stale_file_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendedFile(tmp_path / "file", tmp_path, tmp_path, Patience(60))
    file.append(b"one\n")
    stale, real = [file._descriptor], os.write

    def write(descriptor: int, data: bytes) -> int:
        if descriptor in stale:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "close", lambda descriptor: None)  # else the number is used again
    file.append(b"two\n")
    assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"


def test_a_file_that_is_gone_with_its_content_ends_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendedFile(tmp_path / "file", tmp_path, tmp_path, Patience(60))
    file.append(b"one\n")
    (tmp_path / "file").unlink()
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    with pytest.raises(StorageError, match="cannot be read back"):
        file.look()


def test_a_deleted_file_has_all_its_records_again(tmp_path: Path) -> None:
    paths, clock = RunPaths(tmp_path), ManualClock()
    paths.create()
    with HistoryWriter(paths, "replica-0000", clock) as writer:
        for replica in range(3):
            writer.append(PhaseBegan(replica=replica, trial=None, phase="idle"))
        paths.history_file(writer.name).unlink()
        paths.history.rmdir()
        clock.pause(2)
        writer.append(PhaseBegan(replica=3, trial=None, phase="idle"))
    batch = HistoryReader(paths).read_new()
    assert batch.damages == ()
    assert [record.sequence for record in batch.records] == [0, 1, 2, 3]


def test_callbacks_come_after_the_actions_before_them_and_never_after_a_failure() -> None:
    seen: list[object] = []

    async def scenario() -> None:
        gate, failed = threading.Event(), asyncio.Event()

        def fail() -> None:
            raise OSError(errno.ENOENT, "gone")

        def note(error: Exception) -> None:
            seen.append(str(error))
            failed.set()

        order = InOrder(asyncio.get_running_loop(), note)
        order.after(lambda: seen.append("at once"))
        order.put(gate.wait)
        order.put(lambda: seen.append("written"))
        order.after(lambda: seen.append("reported"))
        order.put(fail)
        order.after(lambda: seen.append("never"))
        gate.set()
        await failed.wait()
        with pytest.raises(OSError, match="gone"):
            order.drain(60)

    asyncio.run(scenario())
    assert seen == ["at once", "written", "reported", "[Errno 2] gone"]


def test_an_append_in_the_background_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, gate, real = RunPaths(tmp_path), threading.Event(), os.fsync
    paths.create()

    def slow(descriptor: int) -> None:
        gate.wait()
        real(descriptor)

    async def scenario() -> list[str]:
        sent: list[str] = []
        with HistoryWriter(paths, "replica-0000", ManualClock()) as writer:
            writer.in_background(lambda error: None)
            monkeypatch.setattr(os, "fsync", slow)
            writer.append(PhaseBegan(replica=0, trial=None, phase="idle"))
            writer.after(lambda: sent.append("recorded"))
            assert sent == [], "the append is back, and nothing is reported"
            gate.set()
            await writer.settled()
            return sent

    assert asyncio.run(scenario()) == ["recorded"]


def test_a_log_that_cannot_be_written_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log = logging.Logger("a run's")
    log.addHandler(handler := QuietHandler(tmp_path / "logs" / "primary.log"))
    log.warning("one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        log.warning("two")
        log.warning("three")
    log.warning("four")
    handler.close()
    lines = (tmp_path / "logs" / "primary.log").read_text().splitlines()
    assert lines == ["one", "(2 lines of this log could not be written)", "four"]
    assert capfd.readouterr() == ("", "")


def test_a_log_on_storage_that_does_not_answer_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiperf.storage.logs.MOST_LINES", 3)
    monkeypatch.setattr("aiperf.storage.logs.LAST_LINES_S", 0.01)
    log, path = logging.Logger("a run's"), tmp_path / "primary.log"
    os.mkfifo(path)  # a system call that opens it hangs until somebody reads
    log.addHandler(handler := QuietHandler(path))
    handler.in_background()
    log.warning("0")
    wait_for(lambda: handler.waiting == 0)
    for number in range(1, 6):
        log.warning("%d", number)
    handler.flush()  # in vain, and not for ever
    monkeypatch.setattr("aiperf.storage.logs.LAST_LINES_S", 60.0)
    with path.open("rb") as reader:
        handler.close()
        assert reader.read().splitlines() == [b"0", b"(2 lines of this log could not be written)", b"1", b"2", b"3"]


def test_a_run_that_is_not_mounted_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, real = tmp_path / "shared" / "run", Path.is_mount
    (root / "history").mkdir(parents=True)
    (root / "run.json").touch()
    mounted = {tmp_path / "shared"}
    monkeypatch.setattr(Path, "is_mount", lambda path: path in mounted or real(path))
    waits: list[str] = []

    def mount(reason: str) -> None:
        waits.append(reason)
        if reason:
            (tmp_path / "away").rename(root)
            mounted.add(tmp_path / "shared")

    file = AppendedFile(root / "history" / "primary-1.jsonl", root, root / "run.json", Patience(60, mount))
    file.append(b"1\n")
    mounted.clear()
    root.rename(tmp_path / "away")
    assert not file.look()
    file.append(b"2\n")
    assert [bool(reason) for reason in waits] == [True, False]
    assert waits[0].endswith("is not mounted")
    assert (root / "history" / "primary-1.jsonl").read_text() == "1\n2\n"
    assert len(list((root / "history").iterdir())) == 1
    root.rename(tmp_path / "away")
    with pytest.raises(StorageError, match="was moved or removed"):
        file.look()


def test_the_reserve_is_real_space_and_is_given_back(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / ".reserve", 1 << 20)
    assert (tmp_path / ".reserve").stat().st_blocks * 512 >= 1 << 20
    reserve.release()
    reserve.release()
    assert list(tmp_path.iterdir()) == []


def test_a_probe_leaves_nothing(tmp_path: Path) -> None:
    assert can_write(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not can_write(tmp_path / "file" / "below") or os.geteuid() == 0


def test_without_patience_an_error_is_raised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"):
        write_atomically(tmp_path / "file", b"data")
    assert list(tmp_path.iterdir()) == []
