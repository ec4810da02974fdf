"""One primary at a time: living, dead and silent holders of a run."""

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from aiperf.clock import SystemClock
from aiperf.errors import RunHeldError
from aiperf.run_directory.claim import SILENCE_S, Claim, find_holder, is_held_here
from aiperf.run_directory.disk import Disk, PatientDisk
from aiperf.run_directory.holder import Holder, Machine, parse_holder
from aiperf.storage.durable import ANSWERS_OF_LINKS
from aiperf.storage.patience import Patience
from tests.support.hand_made import ManualClock
from tests.support.processes import lives
from tests.support.runs import wait_for

DIES = (
    "import os, sys; from pathlib import Path; from aiperf.clock import SystemClock; "
    "from aiperf.run_directory.claim import Claim; Claim.acquire(Path(sys.argv[1]), SystemClock()); os._exit(9)"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "claims"


def last(folder: Path) -> Path:
    return max(folder.iterdir())


def rewrite(folder: Path, **facts: Any) -> None:
    file = last(folder)
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **facts}))


class Touching(ManualClock):
    """Time in which another machine touches a file now and then."""

    def __init__(self, file: Path, every_s: float = 15) -> None:
        super().__init__()
        self._file, self._every_ms, self._due_ms = file, round(every_s * 1000), self.now_ms

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        if self.now_ms >= self._due_ms:
            self._due_ms += self._every_ms
            os.utime(self._file, (1000.0, self._due_ms / 1000 - 5_000_000))  # by a clock that is far behind


def test_a_living_holder_is_respected_and_named(folder: Path) -> None:
    held = rf"another primary has this run: process {os.getpid()} on .*, since 1970-01-01T00:00:00"
    with Claim.acquire(folder, ManualClock(0)) as first, pytest.raises(RunHeldError, match=held):
        Claim.acquire(folder, ManualClock())
    with Claim.acquire(folder, ManualClock()) as second:
        assert (first.number, second.number, second.alone) == (1, 2, True)
        assert is_held_here(folder)
    assert not is_held_here(folder)
    assert find_holder(folder, 0) is None
    assert [file.name for file in sorted(folder.iterdir())] == ["000001.json", "000002.json"]


def test_a_dead_holder_is_detected(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(folder)], check=False)
    assert not is_held_here(folder)
    assert Claim.acquire(folder, ManualClock()).number == 2


def test_a_dead_holder_that_is_still_a_zombie_is_detected(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", DIES, str(folder)]) as process:
        wait_for(lambda: not lives(process.pid))
        assert Claim.acquire(folder, ManualClock()).number == 2


def test_another_process_with_the_id_of_the_dead_one_is_not_the_holder(folder: Path) -> None:
    first = Claim.acquire(folder, ManualClock())
    rewrite(folder, started_ticks=parse_holder(last(folder).read_bytes()).started_ticks - 1)
    second = Claim.acquire(folder, ManualClock())
    first.release()
    assert is_held_here(folder), "the first one's release leaves the second one's claim"
    second.release()


@pytest.mark.parametrize(
    "facts", [{"boot": "another"}, {"namespaces": "pid:[1]"}, {"started_ticks": 0}, {"pid": -1}], ids=str
)
def test_a_holder_that_cannot_be_seen_is_watched(folder: Path, facts: dict[str, Any]) -> None:
    Claim.acquire(folder, ManualClock())
    rewrite(folder, **facts)
    shown: list[str] = []
    with pytest.raises(RunHeldError, match="another primary has this run"):
        Claim.acquire(folder, Touching(last(folder)), show=shown.append)
    clock = ManualClock()
    began_s = clock.monotonic_s()
    claim = Claim.acquire(folder, clock, show=shown.append)
    assert clock.monotonic_s() - began_s > SILENCE_S
    assert not claim.alone, "it may be at work again"
    assert shown[-1].startswith("waiting up to 90 s to see whether this run's primary is alive: ")


def test_what_cannot_be_read_is_alive_until_it_is_untouched(folder: Path) -> None:
    folder.mkdir()
    for damaged in (b"", b'{"tok', b"[]", b"\xff", b"[" * 100_000, b'{"pid": "1", "boot": 7}'):
        file = folder / f"{len(list(folder.iterdir())) + 1:06d}.json"
        file.write_bytes(damaged)
        with pytest.raises(RunHeldError, match="a primary that cannot be identified"):
            Claim.acquire(folder, Touching(file))
        clock = ManualClock()
        Claim.acquire(folder, clock).release()
        assert clock.now_ms - ManualClock().now_ms > SILENCE_S * 1000


def test_a_claim_of_an_earlier_version_is_watched(folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "primary.claim"
    facts = {"token": "t", "host": Machine().host, "pid": os.getpid(), "process_started": 1.5, "since": "2026-01-01"}
    old.write_text(json.dumps(facts))
    with pytest.raises(RunHeldError, match=rf"process {os.getpid()} on .*, since 2026-01-01"):
        Claim.acquire(folder, Touching(old))
    assert Claim.acquire(folder, ManualClock()).number == 1


def test_a_holder_that_is_released_while_it_is_watched_has_a_successor_at_once(folder: Path) -> None:
    first = Claim.acquire(folder, ManualClock())

    class Releasing(ManualClock):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            first.release()

    first._machine.boot = "another"  # as seen from another machine
    rewrite(folder, boot="another")
    clock = Releasing()
    second = Claim.acquire(folder, clock)
    assert (second.number, second.alone) == (2, True)
    assert clock.now_ms - ManualClock().now_ms < 5_000


def test_the_holder_stops_if_another_one_has_its_run(folder: Path) -> None:
    first = Claim.acquire(folder, ManualClock())
    first.touch()
    assert first.lost is None
    rewrite(folder, released=True)
    Claim.acquire(folder, ManualClock())
    first.touch()
    assert f"another primary has taken this run over: process {os.getpid()} on" in str(first.lost)
    first.release()
    assert is_held_here(folder)


def test_a_holder_looks_at_its_claim_at_intervals(folder: Path) -> None:
    clock = ManualClock()
    claim = Claim.acquire(folder, clock)
    os.utime(last(folder), (0, 0))
    clock.pause(14)
    claim.touch(15)
    assert last(folder).stat().st_mtime == 0
    clock.pause(1)
    claim.touch(15)
    assert last(folder).stat().st_mtime > 0


def test_a_claim_that_somebody_removed_is_published_again_unless_another_primary_came(folder: Path) -> None:
    first = Claim.acquire(folder, ManualClock())
    last(folder).unlink()
    first.touch()
    assert first.lost is None
    assert is_held_here(folder)
    last(folder).unlink()
    second = Claim.acquire(folder, ManualClock())
    first.touch()
    assert first.lost is not None
    assert second.lost is None


def test_a_number_that_the_records_know_is_never_used_again(folder: Path) -> None:
    claim = Claim.acquire(folder, ManualClock())
    claim.claim_above(0)
    assert (claim.number, claim.alone) == (1, True)
    claim.claim_above(7)
    assert (claim.number, claim.alone) == (8, False)
    claim.touch()
    assert claim.lost is None
    claim.release()
    assert Claim.acquire(folder, ManualClock()).number == 9


class LyingLinks(Disk):
    """A network file system that has sent the request for a link twice: the second one failed."""

    def link(self, path: Path, target: Path) -> None:
        super().link(path, target)
        raise FileExistsError(errno.EEXIST, "it is there")


class NoLinks(Disk):
    """A file system without hard links."""

    def link(self, path: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "no links")


class Broken(Disk):
    def link(self, path: Path, target: Path) -> None:
        raise OSError(errno.EIO, "broken")


@pytest.mark.parametrize("disk", [LyingLinks(), NoLinks()])
def test_the_file_decides_who_has_won_and_not_the_answer_of_the_file_system(folder: Path, disk: Disk) -> None:
    with Claim.acquire(folder, ManualClock(), disk) as claim:
        assert claim.number == 1
        with pytest.raises(RunHeldError):
            Claim.acquire(folder, ManualClock(), disk)
    assert Claim.acquire(folder, ManualClock(), disk).number == 2
    assert not list(folder.glob(".*"))


def test_a_disk_that_fails_is_no_claim(folder: Path) -> None:
    with pytest.raises(OSError, match="broken"):
        Claim.acquire(folder, ManualClock(), Broken())
    assert list(folder.iterdir()) == []


def refuse(monkeypatch: pytest.MonkeyPatch, names: Iterable[str], code: int, done: bool = False) -> Counter[str]:
    """Let operations of all disks fail three times, before or after they are done."""
    failures = Counter[str]()

    def refusing(name: str, operation: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object) -> object:
            result = operation(*words) if done else None
            if failures[name] < 3:
                failures[name] += 1
                raise OSError(code, "refused")
            return result if done else operation(*words)

        return call

    for name in names:
        monkeypatch.setattr(Disk, name, refusing(name, getattr(Disk, name)))
    monkeypatch.setattr("aiperf.storage.patience.FIRST_PAUSE_S", 0.0)
    return failures


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.__getitem__)
def test_a_claim_is_taken_when_its_storage_answers_again(
    code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("names", "read", "write", "link", "replace", "remove")
    failures = refuse(monkeypatch, names, code)
    with Claim.acquire(folder, ManualClock(), PatientDisk(Patience(60.0))) as claim:
        assert claim.number == 1
    assert failures == dict.fromkeys(names, 3)
    assert Claim.acquire(folder, ManualClock()).number == 2, "the first one was released"
    assert not list(folder.glob(".*"))


LINK_ERRORS = sorted({*errno.errorcode, 524} - ANSWERS_OF_LINKS)


@pytest.mark.parametrize("lies", [False, True])
def test_whatever_a_file_system_answers_to_a_link_one_of_two_has_the_claim_at_once(
    lies: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count, code in enumerate(LINK_ERRORS):
        with monkeypatch.context() as patch:
            refuse(patch, ["link"], code, done=lies)
            patch.setattr("aiperf.storage.patience.FIRST_PAUSE_S", 3600.0)
            claim = Claim.acquire(folder, ManualClock(), PatientDisk(Patience(7200.0)))
            assert claim.number == count + 1, errno.errorcode.get(code, code)
            with pytest.raises(RunHeldError):
                Claim.acquire(folder, ManualClock(), PatientDisk(Patience(0.0)))
            claim.release()
    assert not list(folder.glob(".*"))


def test_a_link_that_was_made_and_refused_is_the_claim(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refuse(monkeypatch, ["link"], errno.ESTALE, done=True) == {}
    claim = Claim.acquire(folder, ManualClock(), PatientDisk(Patience(60.0)))
    assert claim.number == 1
    with pytest.raises(RunHeldError):
        Claim.acquire(folder, ManualClock())


@pytest.mark.parametrize("otherwise", [False, True])
def test_a_claim_that_cannot_be_read_is_as_it_was(
    otherwise: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Claim.acquire(folder, SystemClock())
    assert is_held_here(folder, otherwise)
    refuse(monkeypatch, ["read"], errno.EIO)
    assert is_held_here(folder, otherwise) is otherwise


def test_a_claim_that_cannot_be_written_whole_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Claim.acquire(folder, ManualClock())
    assert list(folder.iterdir()) == []


def test_nothing_that_moves_with_the_clock_is_read(folder: Path) -> None:
    """`create_time` of psutil is made of /proc/stat, which a step of the clock moves."""
    Claim.acquire(folder, SystemClock())
    script = (
        "import sys; sys.path.insert(0, sys.argv[2]); sys.argv[1:]; import builtins, io, os; from pathlib import Path\n"
        "seen = []\n"
        "sys.addaudithook(lambda name, args: seen.append(str(args[0])) if name == 'open' else None)\n"
        "from aiperf.run_directory.claim import find_holder, is_held_here\n"
        "seen.clear()\n"
        "assert is_held_here(Path(sys.argv[1]))\n"
        "assert any(name.endswith('/stat') for name in seen), seen\n"
        "assert '/proc/stat' not in seen and '/proc/uptime' not in seen, seen\n"
    )
    root = str(Path(__file__).parents[4])
    found = subprocess.run(
        [sys.executable, "-c", script, str(folder), root], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


def test_a_holder_is_read_as_it_was_written() -> None:
    machine = Machine()
    holder = machine.describe("token", 0, alone=False)
    assert parse_holder(holder.encode()) == holder
    assert machine.lives(holder) is True
    assert machine.lives(Holder()) is None
