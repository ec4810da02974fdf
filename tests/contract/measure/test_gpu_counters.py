"""Counters of a GPU by an imitated Nsight Compute, whose listing has the form of the real one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.network.json_files import to_json
from replica.measure.counting import gpu_counters
from replica.measure.counting.gpu_counters import IMAGES, METRICS, counted, operations_of, why_not
from search_space.resnet import resnet
from tests.support.trainings.installed import need_frameworks

FADD, FMUL, FFMA = METRICS

HEADINGS = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def row(number: int, kernel: str, metric: str, value: str) -> str:
    return (
        f'"{number}","4711","python3.11","127.0.0.1","{kernel}","1","7","(128, 1, 1)","(64, 4, 1)","0","9.0",'
        f'"Command line profiler metrics","{metric}","inst","{value}"'
    )


def listing(*kernels: tuple[str, str, str]) -> str:
    """What Nsight Compute prints of kernels with these values of the metrics."""
    rows = [
        row(number, f"void kernel<float, {number}>(T1 *, int)", metric, value)
        for number, values in enumerate(kernels)
        for metric, value in zip(METRICS, values, strict=True)
    ]
    return "\n".join(
        [
            "==PROF== Connected to process 4711 (/usr/bin/python3.11)",
            '==PROF== Profiling "kernel" - 0: 0%....50%....100% - 1 pass',
            "==PROF== Disconnected from process 4711",
            HEADINGS,
            *rows,
            "",
        ]
    )


def test_a_fused_multiply_add_is_two_operations() -> None:
    assert operations_of(listing(("1,000", "20", "3"), ("0", "0", "1,234,567"))) == 1020 + 2 * 3 + 2 * 1_234_567


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ("", "has counted no kernel"),
        ("==WARNING== No kernels were profiled.\n", "has counted no kernel"),
        (listing(("1", "n/a", "3")), f"has no {FMUL} of void kernel<float, 0>.*: 'n/a'"),
    ],
)
def test_a_listing_without_counts_is_refused(printed: str, says: str) -> None:
    with pytest.raises(AiperfError, match=says):
        operations_of(printed)


def profiler(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Put a program on the PATH in the place of Nsight Compute."""
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\nimport os, sys\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_the_steps_are_counted_one_after_the_other_and_for_one_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, training = listing(("8", "8", "32")), listing(("8", "8", "32"), ("80", "0", "16"))
    asked = tmp_path / "asked"
    profiler(
        tmp_path,
        monkeypatch,
        f"""
assert os.environ["LC_ALL"] == "C", "numbers without the commas of a language"
open({str(asked)!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
print({forward!r} if sys.argv[-2] == "forward" else {training!r})""",
    )
    assert counted(Path("model.keras")) == ((16 + 64) / IMAGES, (16 + 64 + 80 + 32) / IMAGES)
    for words in asked.read_text().splitlines():
        assert "--csv" in words.split()
        assert "--profile-from-start off" in words, "only what lies between the program's marks"
        assert f"--metrics {FADD},{FMUL},{FFMA}" in words


def test_the_profilers_own_words_say_why_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    profiler(tmp_path, monkeypatch, f"print({said!r})\nsys.exit(1)")
    with pytest.raises(AiperfError, match=r"cannot count model\.keras: ==ERROR== ERR_NVGPUCTRPERM"):
        counted(Path("model.keras"))


@pytest.mark.parametrize("body", ["import time; time.sleep(600)", "print('==ERROR== of a kernel'); sys.exit(1)"])
def test_what_other_profilers_have_counted_is_kept_if_this_one_fails(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_frameworks("tensorflow")
    from replica.measure.counting import profilers

    profiler(tmp_path, monkeypatch, body)
    if "sleep" in body:
        monkeypatch.setattr(gpu_counters, "TIMEOUT_S", 1)
    monkeypatch.setattr(gpu_counters, "why_not", lambda: None)
    monkeypatch.setattr(profilers, "tensorflow_forward", lambda model: 1.0)
    monkeypatch.setattr(profilers, "xla", lambda path: profilers.Verification("XLA", 2.0, 4.0))
    found = profilers.verify(Path("model.keras"), None)
    assert [item.source for item in found] == ["TensorFlow profiler", "XLA"]
    said = "has not counted" if "sleep" in body else "==ERROR== of a kernel"
    assert said in capsys.readouterr().err


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_counters, "find_accelerators", lambda: ())
    assert why_not() == "", "nothing to say without a GPU"
    monkeypatch.setattr(gpu_counters, "find_accelerators", lambda: ("one",))
    for restricted, expected in ((None, ""), (True, "NVreg_RestrictProfilingToAdminUsers=0 opens them")):
        monkeypatch.setattr(gpu_counters, "restricted_counters", lambda restricted=restricted: restricted)
        assert str(why_not()).endswith(expected)
    monkeypatch.setattr(gpu_counters, "restricted_counters", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_not() == "Nsight Compute (ncu) is not on the PATH"
    need_frameworks("torch")
    profiler(tmp_path, monkeypatch, "")
    assert why_not() is None


STEP = """
import sys
import torch
marks = []
torch.cuda.synchronize = lambda: marks.append("waits")
torch.cuda.profiler.start = lambda: marks.append("starts")
torch.cuda.profiler.stop = lambda: marks.append("stops")
from replica.measure.counting.gpu_steps import main
assert main() == 0
print(marks)
"""


@pytest.mark.parametrize("step", ["forward", "training"])
def test_the_step_that_is_counted_is_warm_and_whole(step: str, tmp_path: Path) -> None:
    need_frameworks("torch")
    (tmp_path / "architecture.json").write_text(to_json(resnet(50, 32, 10)))
    words = [sys.executable, "-c", STEP, str(tmp_path / "architecture.json"), step, "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['waits', 'starts', 'waits', 'stops']"
