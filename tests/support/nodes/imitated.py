"""Devices that answer a screening at once, with known rates, for the programs on real nodes."""

import json
import sys
from pathlib import Path

SLOW_SHARE = 0.7

PROGRAM = """
import os, sys

words = sys.orig_argv
if "replica.measure.screen" in words:
    device, kind = (words[words.index(name) + 1] for name in ("--device", "--kind"))
    row = '{{"type":"row","device":"%s","kind":"%s","measure":"%s","value":%s}}\\n'
    os.write(1, (row % (device, kind, "ready", "null")).encode())
    sys.stdin.readline()
    slow = {share} if os.environ.get("SLURMD_NODENAME") == {slow!r} else 1.0
    for measure, rate in (("matmul_32", 5e11), ("triad", 2e10)):
        os.write(1, (row % (device, kind, measure, rate * slow)).encode())
    os._exit(0)
"""


def imitate_devices(folder: Path, slow: str = "") -> list[str]:
    """Options of `aiperf screen` for nodes with such devices; those of one SLURM node are slow."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PROGRAM.format(share=SLOW_SHARE, slow=slow))
    path = f'export PYTHONPATH="{folder}:{":".join(sys.path)}"'
    settings = {"environment.activate": json.dumps(path), "environment.python": json.dumps(sys.executable)}
    return ["--quick", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]
