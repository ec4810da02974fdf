"""Changed lines of a small run: what is found in each is as it was written down, word by word.

A change that is meant to find something else writes the list again and shows the difference:

    python -m tests.unit.analysis.integrity.test_mutations
"""

import json
import random
import re
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.clock import format_utc, parse_utc
from aiperf.records.chain import first_link, hash_of
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import read_run
from tests.support.folders import GOLDEN
from tests.support.hand_made import HandMadeRun

FILE = GOLDEN / "mutations.json"
KINDS = ("flip", "cut", "duplicate", "swap", "retime", "renumber", "digit")
NUMBER = re.compile(rb'"(?:trial|epoch|epochs|images_trained|images_evaluated|correct|replica|round)":(\d)')


def honest(root: Path) -> RunPaths:
    """Two trials of one replica, one of another that fails, and an open epoch."""
    run = HandMadeRun(root).at(0).release(100, replicas=2).at(1).start_trial(1).at(1).start_trial(2, replica=1)
    run.at(10).epoch(1, 1, 180).epoch(2, 1, 200, replica=1).at(12).progress(2, 2, 500, replica=1)
    run.at(20).epoch(1, 2, 270).at(21).end_trial(1).at(22).fail_trial(2, replica=1).at(25).start_trial(3)
    run.at(40).progress(3, 1, 700).at(50).epoch(3, 1, 200).at(60).epoch(3, 2, 250).at(70).progress(3, 3, 100)
    return run.end(100).paths


def mutated(lines: list[bytes], kind: str, rng: random.Random) -> list[bytes]:
    """The lines with one change of a kind."""
    lines, place, other = list(lines), rng.randrange(len(lines)), rng.randrange(len(lines))
    line = lines[place]
    if kind == "flip":
        lines[place] = line.replace(b'"data"', b'"dada"')
    elif kind == "cut":
        del lines[place]
    elif kind == "duplicate":
        lines.insert(other, line)
    elif kind == "swap":
        lines[place], lines[other] = lines[other], line
    elif kind == "retime":
        by_ms, steps = rng.choice((-3_600_000, -5000, 1500, 20_000, 10_000_000)), rng.random() < 0.5
        found = re.search(rb'"time":"([^"]*)","monotonic_ms":(-?\d+)', line)
        assert found is not None
        time, monotonic = format_utc(parse_utc(found[1].decode()) + by_ms), int(found[2]) + by_ms * (not steps)
        lines[place] = line.replace(found[0], f'"time":"{time}","monotonic_ms":{monotonic}'.encode())
    elif kind == "renumber":
        lines[place] = re.sub(rb'"sequence":\d+', b'"sequence":%d' % rng.randrange(50), line, count=1)
    elif digits := [match.span(1) for match in NUMBER.finditer(line)]:
        begin, end = rng.choice(digits)
        lines[place] = line[:begin] + b"%d" % rng.randrange(10) + line[end:]
    return lines


def sealed(lines: list[bytes], link: str) -> Iterator[bytes]:
    """Lines with links and checksums that fit."""
    for line in lines:
        head = line[: line.index(b',"previous"')] + b',"previous":"' + link.encode() + b'"'
        yield head + b',"crc32":"%08x"}' % zlib.crc32(head)
        link = hash_of(head + b',"crc32":"%08x"}' % zlib.crc32(head))


def found_in(paths: RunPaths, number: int) -> list[str]:
    """The damages with the change of a number, without hashes; the files are as before."""
    kind, rng = KINDS[number % len(KINDS)], random.Random(number)
    file = rng.choice(paths.history_files())
    intact = file.read_bytes()
    lines = mutated(intact.split(b"\n")[:-1], kind, rng)
    if kind != "flip" and rng.random() < 0.6:
        lines = list(sealed(lines, first_link(paths)))
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    try:
        return [f"{damage.kind}: {re.sub('[0-9a-f]{64}', 'HASH', str(damage))}" for damage in read_run(paths).damages]
    finally:
        file.write_bytes(intact)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    return honest(tmp_path_factory.mktemp("mutations") / "run")


@pytest.mark.parametrize("number", range(8 * len(KINDS)))
def test_what_is_found_in_a_changed_file_is_as_ever(run: RunPaths, number: int) -> None:
    assert found_in(run, number) == json.loads(FILE.read_text())[number]


def test_the_run_itself_has_no_damage(run: RunPaths) -> None:
    assert read_run(run).damages == ()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = honest(Path(folder) / "run")
        every = [json.dumps(found_in(made, number)) for number in range(8 * len(KINDS))]
        FILE.write_text("[\n" + ",\n".join(every) + "\n]\n")
