"""Files of samples: the numbers of each line, and what is left out of damaged ones."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiperf.clock import format_utc, parse_utc
from aiperf.run_directory.checksums import sealed
from analysis.reading.samples import COLUMNS, read_samples

HEAD = {"version": 1, "host": "node-1", "interval_s": 30, "writer": "replica-0001-1"}
NAN = float("nan")


def _sample(rng: random.Random, number: int, accelerators: int) -> dict[str, Any]:
    gpu = {
        "DCGM_FI_DEV_GPU_UTIL": rng.randint(0, 100),
        "DCGM_FI_DEV_FB_USED": rng.uniform(0, 8e4),
        "DCGM_FI_DEV_FB_TOTAL": 81559.0,
    }
    rest: dict[str, Any] = {
        "cpu_percent": rng.uniform(0, 100),
        "memory_used_bytes": 2**37 + number,
        "memory_total_bytes": 2**40,
    }
    devices = [
        {**gpu, "DCGM_FI_DEV_POWER_USAGE": rng.uniform(70, 900), "DCGM_FI_DEV_SM_CLOCK": rng.randint(300, 1980)}
        for _ in range(accelerators)
    ]
    active = [{"uuid": f"GPU-{place}", "DCGM_FI_PROF_SM_ACTIVE": rng.random()} for place in range(accelerators)]
    if active and number % 3:
        rest["dcgm"] = [{**part, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.25} for part in active[1:]] + active[:1]
    return {"time": format_utc(1_700_000_000_000 + 30_000 * number), "accelerators": devices, **rest}


def _row(sample: dict[str, Any]) -> list[float]:
    """The numbers of a sample by definition."""
    gpus = sample["accelerators"]

    def of(name: str) -> list[float]:
        return [float(gpu[f"DCGM_FI_DEV_{name}"]) for gpu in gpus if f"DCGM_FI_DEV_{name}" in gpu]

    use, used, size, power = of("GPU_UTIL"), of("FB_USED"), of("FB_TOTAL"), of("POWER_USAGE")
    clock = of("SM_CLOCK")
    sms, tensors = (
        [gpu[f"DCGM_FI_PROF_{name}"] for gpu in sample.get("dcgm", ()) if f"DCGM_FI_PROF_{name}" in gpu]
        for name in ("SM_ACTIVE", "PIPE_TENSOR_ACTIVE")
    )
    return [
        float(parse_utc(sample["time"])),
        len(gpus),
        sum(use) / len(use) if use else NAN,
        100 * sum(used) / sum(size) if size and len(used) == len(size) else NAN,
        sum(power) if power and len(power) == len(gpus) else NAN,
        NAN,
        sample["cpu_percent"],
        NAN,
        sample["memory_used_bytes"],
        sample["memory_total_bytes"],
        100 * sample["memory_used_bytes"] / sample["memory_total_bytes"],
        sum(clock) / len(clock) if clock else NAN,
        100 * sum(sms) / len(sms) if sms else NAN,
        100 * sum(tensors) / len(tensors) if tensors else NAN,
    ]


def _written(documents: list[dict[str, Any]], seals: bool = False) -> bytes:
    return b"".join((sealed(item) if seals else json.dumps(item).encode()) + b"\n" for item in documents)


@pytest.mark.parametrize("seals", [False, True])
@pytest.mark.parametrize("accelerators", [0, 1, 8])
def test_each_sample_is_a_row(tmp_path: Path, seals: bool, accelerators: int) -> None:
    rng, file = random.Random(1), tmp_path / "replica-0001-1-node-1.jsonl"
    samples = [_sample(rng, number, accelerators) for number in range(30)]
    if accelerators == 8:  # a device without power, and one that says nothing
        del samples[3]["accelerators"][2]["DCGM_FI_DEV_POWER_USAGE"]
        samples[4]["accelerators"][5] = {}
    file.write_bytes(_written([HEAD, *samples[:20], {**HEAD, "writer": "replica-0001-2"}, *samples[20:]], seals))
    name, writers, host, table, bad, _, _ = read_samples(file)
    assert (name, host, bad) == (file.name, "node-1", 0)
    assert writers == [(0, "replica-0001-1"), (20, "replica-0001-2")]
    assert table.shape == (30, len(COLUMNS))
    assert np.allclose(table, [_row(sample) for sample in samples], rtol=1e-12, equal_nan=True)


CHANGES: dict[bytes, bytes] = {
    b'"time": ': b'"thyme": ',
    b'"time": "2': b'"time": "x',
    b"1099511627776": b"0",
    b"81559.0": b"1e999",
    b'"cpu_percent": ': b'"cpu_percent": "',
    b'"accelerators": [{': b'"accelerators": [5, {',
    b"}\n": b"\n",
    b'"DCGM_FI_DEV_FB_USED": ': b'"DCGM_FI_DEV_FB_USED": null, "x": ',
    b'{"time"': b'{"version": 1, "time"',
}
"""What makes a line unreadable, or says what cannot be."""


@pytest.mark.parametrize("before", CHANGES)
def test_a_line_that_says_what_cannot_be_is_left_out(tmp_path: Path, before: bytes) -> None:
    rng, file = random.Random(2), tmp_path / "replica-0001-1-node-1.jsonl"
    samples = [_sample(rng, number, 2) for number in range(12)]
    lines = _written(samples).splitlines(keepends=True)
    lines[5] = lines[5].replace(before, CHANGES[before], 1)
    del samples[5]
    file.write_bytes(b"".join([_written([HEAD]), *lines[:6], _written([{**HEAD, "writer": "b-2"}]), *lines[6:]]))
    _, writers, _, table, bad, _, _ = read_samples(file)
    assert bad == 1
    assert writers == [(0, "replica-0001-1"), (5, "b-2")]
    assert np.allclose(table, [_row(sample) for sample in samples], rtol=1e-12, equal_nan=True)


def test_any_changed_byte_of_a_sealed_file_costs_its_line(tmp_path: Path) -> None:
    rng, file = random.Random(3), tmp_path / "replica-0001-1-node-1.jsonl"
    data = _written([HEAD, *(_sample(rng, number, 2) for number in range(12))], seals=True)
    for _ in range(100):
        place = rng.randrange(len(data))
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        _, _, _, table, bad, _, _ = read_samples(file)
        assert bad >= 1
        assert len(table) >= 10
