"""Usual files are read in loops of libraries, others line by line: with the same result."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from aiperf.records.bodies import PhaseBegan
from aiperf.records.chain import first_link, hash_of
from analysis.reading import history
from analysis.reading.history import ProgressThinning, select_lines
from analysis.reading.usual import usual_lines
from tests.support.hand_made import T0_MS, HandMadeRun

THINNINGS = (None, ProgressThinning(T0_MS, T0_MS + 7_200_000), ProgressThinning(T0_MS + 5_001, T0_MS + 300_000))
WANTED = frozenset(range(0, 100, 3))


def made(root: Path) -> tuple[Path, str]:
    """A replica's file with lines of all kinds, and the link of its first record."""
    run = HandMadeRun(root).at(0).release(7200).at(1).start_trial(1)
    for epoch in (1, 2):
        for step in range(8):
            run.at(epoch * 200 + step * 20).progress(1, epoch, 100 * step)
        run.replicas[0].append(PhaseBegan(replica=0, trial=None if epoch == 2 else 1, phase="evaluate"))
        run.at(epoch * 200 + 190).epoch(1, epoch)
    run.end_trial(1).end(7200)
    return run.paths.history_file("replica-0000-1"), first_link(run.paths)


def is_usual(file: Path, link: str) -> bool:
    return usual_lines(file.read_bytes(), file.stem, link, 1, 60_000) is not None


def assert_same(file: Path, link: str) -> None:
    for thinning in THINNINGS:
        one_by_one = history._select_strange(file, file.read_bytes(), thinning, link, WANTED)
        assert select_lines(file, thinning, link, WANTED) == one_by_one


def sealed(lines: Iterable[bytes], link: str) -> bytes:
    """Lines with links and checksums that fit."""
    found = []
    for line in lines:
        head = line[: line.index(b',"previous"')] + b',"previous":"' + link.encode() + b'"'
        found.append(head + b',"crc32":"%08x"}' % zlib.crc32(head))
        link = hash_of(found[-1])
    return b"\n".join(found) + b"\n"


def test_a_usual_file_is_read_as_line_by_line(tmp_path: Path) -> None:
    file, link = made(tmp_path)
    assert is_usual(file, link)
    assert_same(file, link)
    kept = select_lines(file, THINNINGS[1], link, WANTED)
    assert len(kept.phases) == 2
    assert 0 < len(kept.texts) < len(file.read_bytes().splitlines()) - 2
    file.write_bytes(file.read_bytes()[:-9])  # an unfinished line
    assert select_lines(file, None, link).unfinished
    assert_same(file, link)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"sequence":7,', b'"sequence":8,'),
        (b'"sequence":7,', b'"sequence":07,'),
        (b'"images_trained":300,', b'"images_trained":0300,'),
        (b'"images_trained":300,', b'"images_trained":300,"images_trained":900,'),
        (b'"phase":"evaluate"', b'"phase":"dream"'),
        (b'"writer":"replica-0000-1","sequence":7', b'"writer":"replica-0001-1","sequence":7'),
        (b":20.000Z", b":60.000Z"),
        (b":20.000Z", b":19.000Z"),
        (b'"version":2', b'"version":1'),
    ],
)
def test_what_is_sealed_and_strange_is_found_all_the_same(tmp_path: Path, old: bytes, new: bytes) -> None:
    file, link = made(tmp_path)
    lines = file.read_bytes().splitlines()
    place = next(place for place, line in enumerate(lines) if old in line)
    lines[place] = lines[place].replace(old, new, 1)
    file.write_bytes(sealed(lines, link))
    assert not is_usual(file, link)
    assert_same(file, link)


def test_another_order_of_keys_is_left_to_the_decoder(tmp_path: Path) -> None:
    file, link = made(tmp_path)
    changed = file.read_bytes().replace(b'"type":"progress","trial":1', b'"trial":1,"type":"progress"')
    file.write_bytes(sealed(changed.splitlines(), link))
    assert is_usual(file, link)
    assert_same(file, link)
    assert len(select_lines(file, THINNINGS[1], link).texts) == changed.count(b"\n") - 2


def test_changed_bytes_are_found_all_the_same(tmp_path: Path) -> None:
    file, link = made(tmp_path)
    intact, rng = file.read_bytes(), random.Random(3)
    assert not is_usual(file, "0" * 64)
    for _ in range(150):
        place, new = rng.randrange(len(intact)), rng.choice([b"", b"0", b"\n", b" ", b"x", b'"', b"}"])
        changed = intact[:place] + new + intact[place + rng.randint(0, 1) :]
        file.write_bytes(changed)
        assert is_usual(file, link) == (changed == intact)
        assert_same(file, link)
