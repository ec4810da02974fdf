"""`aiperf micro` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replica.micro.stacks import missing
from testing.hand_made import aiperf

KEYS = {"operator", "kind", "pass", "stack", "precision", "operations", "ops_per_s", "images_per_s", "bytes_per_s",
        "share_of_ceiling", "spread", "noisy", "error_against_reference"}  # fmt: skip


def test_unknown_names_are_complained_about_and_the_rest_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "micro.json"
    done = aiperf("micro", "--quick", "--operators", "fc,fft", "--kinds", "sparse,moon", "--stack", "tensorflow",
                  "--format", "json", "--output", file, timeout_s=500)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "unknown operator 'fft'; known: conv, pool, fc" in done.stderr
    assert "unknown kind 'moon'; known: dense, sparse, 3d" in done.stderr
    rows = json.loads(done.stdout)
    assert [(row["operator"], row["kind"], row["pass"]) for row in rows] == [
        ("gemm", "ceiling", "forward"), ("triad", "ceiling", "forward"),
        *(("fc", "sparse2d", direction) for direction in ("forward", "input", "weights")),
    ]  # fmt: skip
    for row in rows:
        assert row.keys() >= KEYS
        assert row["ops_per_s"] > 0
        assert row["error_against_reference"] < 2e-4
    assert json.loads(file.read_text()) == rows


def test_wrong_use_and_missing_stacks(tmp_path: Path) -> None:
    wrong = aiperf("micro", "--operators", "fft")
    assert (wrong.returncode, "no known operator in 'fft'" in wrong.stderr) == (2, True)
    absent = aiperf("micro", "--stack", "native", environment={"AIPERF_NATIVE": str(tmp_path / "none.so")})
    assert (absent.returncode, "'make native' builds it" in absent.stderr) == (3, True)


def test_a_stack_a_precision_and_an_operator_that_are_missing_cost_a_line_each_and_the_rest_runs(
    tmp_path: Path,
) -> None:
    if reason := missing("native"):
        pytest.skip(reason)
    file = tmp_path / "micro.csv"
    half = aiperf("micro", "--quick", "--operators", "fc", "--kinds", "sparse", "--stack", "native", "--precision",
                  "float16", "--format", "json", timeout_s=500)  # fmt: skip
    # Processors without AVX512-FP16 say so, and measure what they can.
    refused = [line for line in half.stderr.splitlines() if "has no float16 for it on this CPU" in line]
    rows = json.loads(half.stdout)
    assert [row["operator"] for row in rows if row["operator"] != "gemm"][:1] == ["triad"]
    assert len(refused) + sum(row["operator"] == "fc" for row in rows) == 3 + (len(refused) > 0) * 2
    several = aiperf("micro", "--quick", "--operators", "fc", "--kinds", "sparse", "--stack", "native,cuda", "--format",
                     "csv", "--output", file, timeout_s=500)  # fmt: skip
    assert several.returncode == 0, several.stderr
    assert "unknown stack 'cuda'; known: tensorflow, torch, jax, native" in several.stderr
    assert len(several.stdout.splitlines()) == 1 + 2 + 3
    unbuilt = {"AIPERF_NATIVE": str(tmp_path / "none.so")}
    none = aiperf("micro", "--quick", "--stack", "tensorflow,native", "--operators", "fc", "--kinds", "sparse",
                  "--format", "json", environment=unbuilt, timeout_s=500)  # fmt: skip
    assert none.returncode == 0, none.stderr
    assert "stack native is left out: " in none.stderr
    assert {row["stack"] for row in json.loads(none.stdout)} == {"tensorflow"}
