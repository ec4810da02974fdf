"""The tools for machines with GPUs, as far as they can be tested without one."""

import subprocess
from pathlib import Path

from aiperf.network.layers import Conv
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
    assert (none.returncode, none.stderr) == (1, f"no framework in {python} sees an accelerator\n")
