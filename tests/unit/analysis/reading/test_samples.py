"""A usual file of samples is read in columns, and says what its lines say one by one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiperf.clock import format_utc
from aiperf.run_directory.checksums import sealed
from analysis.reading.samples import read_lines, read_samples, usual_samples

HEAD = {"version": 1, "host": "node-1", "interval_s": 30, "writer": "replica-0001-1"}


def _sample(rng: random.Random, number: int, accelerators: int) -> dict[str, Any]:
    gpu = {"DCGM_FI_DEV_GPU_UTIL": rng.randint(0, 100), "DCGM_FI_DEV_FB_USED": rng.uniform(0, 8e4),
           "DCGM_FI_DEV_FB_TOTAL": 81559.0, "DCGM_FI_DEV_POWER_USAGE": rng.uniform(70, 900)}  # fmt: skip
    rest = {"cpu_percent": rng.uniform(0, 100), "memory_used_bytes": 2**37 + number, "memory_total_bytes": 2**40}
    devices = [{**gpu, "DCGM_FI_DEV_POWER_USAGE": rng.uniform(70, 900)} for _ in range(accelerators)]
    return {"time": format_utc(1_700_000_000_000 + 30_000 * number), "accelerators": devices, **rest}


def _written(documents: list[dict[str, Any]], seals: bool) -> bytes:
    return b"".join((sealed(item) if seals else json.dumps(item).encode()) + b"\n" for item in documents)


def _same(file: Path) -> None:
    found, expected = read_samples(file), read_lines(file)
    assert found[:3] == expected[:3]
    assert found[4] == expected[4]
    assert np.array_equal(found[3], expected[3], equal_nan=True)


@pytest.mark.parametrize("seals", [False, True])
@pytest.mark.parametrize("accelerators", [0, 1, 8])
def test_columns_are_the_lines_one_by_one(tmp_path: Path, seals: bool, accelerators: int) -> None:
    rng, file = random.Random(1), tmp_path / "replica-0001-1-node-1.jsonl"
    samples = [_sample(rng, number, accelerators) for number in range(30)]
    file.write_bytes(_written([HEAD, *samples], seals))
    assert usual_samples(_written(samples, seals), len(samples)) is not None
    _same(file)


CHANGES = (
    (b'"cpu_percent": ', b'"cpu_percent": -'), (b"memory_total_bytes", b"other"), (b"}\n", b"}\n\n"),
    (b"T22:", b"T25:"), (b"1099511627776", b"0"), (b"81559.0", b"0"), (b"81559.0", b"1e999"), (b"81559.0", b"null"),
    (b"}\n", b"}"),
    (b'"DCGM_FI_DEV_POWER_USAGE"', b'"version"'), (b'"cpu_percent"', b'"\\u0076ersion"'), (b'.000Z"', b'.000+01:00"'),
    (b', "cpu', b',\n"cpu'), (b'"accelerators": [{', b'"accelerators": [{}, {'), (b"}\n{", b"} {"),
    (b"crc32", b"crc33"), (b'"DCGM_FI_DEV_FB_USED"', b'"used"'),
)  # fmt: skip


def test_a_changed_file_is_read_as_its_lines_are(tmp_path: Path) -> None:
    """Damage, heads in the middle, and anything else that samplers do not write."""
    rng, file = random.Random(2), tmp_path / "replica-0001-1-node-1.jsonl"
    for seals in (False, True):
        data = _written([HEAD, *(_sample(rng, number, 2) for number in range(12))], seals)
        for before, after in CHANGES:
            places = [place for place in range(len(data)) if data.startswith(before, place)]
            for place in rng.sample(places, min(4, len(places))):
                file.write_bytes(data[:place] + after + data[place + len(before) :])
                _same(file)
            file.write_bytes(data.replace(before, after))
            _same(file)
        for _ in range(100):
            place = rng.randrange(len(data))
            file.write_bytes(data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :])
            _same(file)
