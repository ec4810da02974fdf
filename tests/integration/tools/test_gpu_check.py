"""The tools for machines with GPUs, as far as they can be tested without one."""

import json
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from aiperf.network.layers import Conv
from benchmarks.card import ratios
from benchmarks.gpu import convolutions
from search_space.resnet import resnet
from tests.support.folders import ROOT


def test_the_bare_loops_train_the_network_that_the_trainer_begins_with() -> None:
    architecture = resnet(50, 224, 1000)
    wanted = sorted(
        (*node.layer.kernel, node.layer.filters, *node.layer.stride)
        for node in architecture.nodes
        if isinstance(node.layer, Conv)
    )
    found = sorted((kernel, kernel, filters, stride, stride) for _, kernel, _, filters, stride in convolutions())
    assert found == wanted
    weights = sum(kernel * kernel * given * filters for _, kernel, given, filters, _ in convolutions())
    normalised = sum(2 * filters for _, _, _, filters, _ in convolutions())
    moving = normalised
    dense = 2048 * 1000 + 1000
    assert architecture.parameter_count in (weights + normalised + dense, weights + normalised + moving + dense)


def test_the_check_says_how_it_is_used_and_what_it_does_not_find(tmp_path: Path) -> None:
    script = str(ROOT / "tools/gpu_check.sh")
    wrong = subprocess.run([script, "--what"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (2, f"usage: {script} [FOLDER] [--tiny]\n")
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    none = subprocess.run(
        [script, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(python)},
    )
    said = none.stdout.splitlines()
    assert none.returncode == 1
    assert [line for line in said if line.endswith("no accelerator")] == [
        "torch: sees no accelerator",
        "jax: sees no accelerator",
    ]
    assert [line.partition(":")[0] for line in said if "FAILED" in line] == ["devices", "ratios"], "no other is done"


def test_figures_of_a_card_are_compared_by_framework_and_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def trained(name: str, **figures: Any) -> dict[str, Any]:
        return {"trainer": name, "batch": 256, "compile": "auto", "images": "device", **figures}

    lines = [
        {"devices": []},
        trained("torch", ready_s=40.0),
        trained("torch", images_per_s=7160.0),
        trained("torch", images_per_s=5500.0, batch=64),
        {"loop": "torch.graph", "batch": 256, "first_step_s": 30.0},
        {"loop": "torch.graph", "batch": 256, "images_per_s": 7251.0},
        {"loop": "torch.compiled", "batch": 256, "images_per_s": 6916.0},
        trained("torch", ready_s=10.0),
        trained("torch", images_per_s=7000.0),
        trained("torch", images_per_s=5354.0, compile="off"),
        trained("torch", images_per_s=900.0, compile="off", precision="float32"),
        trained("torch", images_per_s=1.0, images="host"),
        trained("jax", images_per_s=7244.0),
    ]
    file = tmp_path / "figures.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ratios(Namespace(what=str(file)))
    whole, small, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert whole == {
        **{"of": "torch", "batch": 256, "ratio_best_loop": 7160 / 7251, "graph_ratio": 7160 / 5354},
        **{"compile_s_cold": 40.0, "compile_s_warm": 10.0},
    }
    assert (small, other) == ({"of": "torch", "batch": 64}, {"of": "jax", "batch": 256})
