"""`aiperf micro` as a user calls it."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from aiperf.host import this_host
from replica.measure.micro.stacks import missing
from tests.support.hand_made import aiperf

pytestmark = pytest.mark.usefixtures("small_caches")

KEYS = {
    "operator",
    "kind",
    "pass",
    "stack",
    "precision",
    "operations",
    "ops_per_s",
    "images_per_s",
    "bytes_per_s",
    "share_of_ceiling",
    "spread",
    "noisy",
    "error_against_reference",
}


def test_unknown_names_are_complained_about_and_the_rest_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "micro.json"
    done = aiperf(
        "micro",
        "--quick",
        "--operators",
        "fc,fft",
        "--kinds",
        "sparse,moon",
        "--stack",
        "tensorflow",
        "--format",
        "json",
        "--output",
        file,
        timeout_s=500,
    )
    assert done.returncode == 0, done.stderr
    assert "unknown operator 'fft'; known: conv, pool, fc" in done.stderr
    assert "unknown kind 'moon'; known: dense, sparse, 3d" in done.stderr
    rows = json.loads(done.stdout)
    assert [(row["operator"], row["kind"], row["pass"]) for row in rows] == [
        ("gemm", "ceiling", "forward"),
        ("triad", "ceiling", "forward"),
        *(("fc", "sparse2d", direction) for direction in ("forward", "input", "weights")),
    ]
    for row in rows:
        assert row.keys() >= KEYS
        assert row["ops_per_s"] > 0
        assert row["error_against_reference"] < 2e-4
    assert json.loads(file.read_text()) == rows


def test_wrong_use_and_missing_stacks(tmp_path: Path) -> None:
    wrong = aiperf("micro", "--operators", "fft")
    assert (wrong.returncode, "no known operator in 'fft'" in wrong.stderr) == (2, True)
    assert wrong.stderr.count("fft") == 1
    absent = aiperf("micro", "--stack", "native", environment={"AIPERF_NATIVE": str(tmp_path / "none.so")})
    assert (absent.returncode, "'make native' builds it" in absent.stderr) == (3, True)


FLAGS = this_host().cpu_flags()


@pytest.mark.parametrize(
    "processor", [*(["AVX2"] if "avx2" in FLAGS else []), *(["DEFAULT"] if "avx512_fp16" in FLAGS else [])]
)
def test_a_precision_that_the_processor_lacks_costs_two_lines_and_the_rest_runs(processor: str) -> None:
    if reason := missing("native"):
        pytest.skip(reason)
    done = aiperf(
        "micro",
        "--quick",
        "--operators",
        "fc",
        "--kinds",
        "sparse",
        "--stack",
        "native",
        "--precision",
        "float16",
        "--format",
        "json",
        environment={"ONEDNN_MAX_CPU_ISA": processor},
        timeout_s=500,
    )
    assert done.returncode == 0, done.stderr
    measured = Counter(row["operator"] for row in json.loads(done.stdout))
    refused = [line for line in done.stderr.splitlines() if "has no float16 for it on this CPU" in line]
    # Each reason has a line for its first pass, and a second one for the others.
    first = Counter(
        re.findall(r"^aiperf: native: (\w+) .*, (?:forward|input|weights): oneDNN", done.stderr, re.MULTILINE)
    )
    further: Counter[str] = Counter()
    for named in re.findall(r"further passes are left out \((.*)\)$", done.stderr, re.MULTILINE):
        further.update({operator: int(times) for operator, times in (each.split() for each in named.split(", "))})
    assert measured["triad"] == 1
    assert measured["fc"] + first["fc"] + further["fc"] == 3, done.stderr
    if processor == "AVX2":
        # It has no AVX512-FP16, whatever the machine.
        assert (len(refused), measured["gemm"], measured["fc"]) == (2, 0, 0), done.stderr
    else:
        assert bool(refused) == (measured["gemm"] == 0 or measured["fc"] < 3), done.stderr


def test_stacks_that_are_missing_or_unknown_cost_a_line_each_and_the_rest_runs(tmp_path: Path) -> None:
    if reason := missing("native"):
        pytest.skip(reason)
    file = tmp_path / "micro.csv"
    several = aiperf(
        "micro",
        "--quick",
        "--operators",
        "fc",
        "--kinds",
        "sparse",
        "--stack",
        "native,cuda",
        "--format",
        "csv",
        "--output",
        file,
        timeout_s=500,
    )
    assert several.returncode == 0, several.stderr
    assert "unknown stack 'cuda'; known: tensorflow, torch, jax, native" in several.stderr
    assert len(several.stdout.splitlines()) == 1 + 2 + 3
    unbuilt = {"AIPERF_NATIVE": str(tmp_path / "none.so")}
    none = aiperf(
        "micro",
        "--quick",
        "--stack",
        "jax,native",
        "--operators",
        "fc",
        "--kinds",
        "sparse",
        "--format",
        "json",
        environment=unbuilt,
        timeout_s=500,
    )
    assert none.returncode == 0, none.stderr
    assert "stack native is left out: " in none.stderr
    assert {row["stack"] for row in json.loads(none.stdout)} == {"jax"}
