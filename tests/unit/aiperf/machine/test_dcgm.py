"""DCGM's program on imitated nodes: the GPUs by UUID, and programs that fail."""

from pathlib import Path

import pytest

from aiperf.machine.telemetry import Dcgm, activity_in

DISCOVERY = """\
2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA H800                                                    |
|        | PCI Bus ID: 00000000:18:00.0                                         |
|        | Device UUID: GPU-34bf77d1-c686-6821-79a8-32d326c5039c                |
+--------+----------------------------------------------------------------------+
| 1      | Name: NVIDIA H800                                                    |
|        | PCI Bus ID: 00000000:3E:00.0                                         |
|        | Device UUID: GPU-f5046fa5-3db4-45e8-870a-dc1376becaa5                |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
"""

DMON = """\
#Entity   SMACT        TENSO
ID
GPU 0     N/A          N/A
GPU 1     N/A          N/A
GPU 0     0.912        0.521
GPU 1     0.905        N/A
"""


def install(folder: Path, patch: pytest.MonkeyPatch, dmon: str = DMON, code: int = 0) -> None:
    """Put a program in the way that prints this and counts its calls."""
    (folder / "discovery.txt").write_text(DISCOVERY)
    (folder / "dmon.txt").write_text(dmon)
    program = folder / "dcgmi"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> "{folder}/calls"\nwhile read -r line; do echo "$line"; done '
        f'< "{folder}/$1.txt"\nexit {code}\n'
    )
    program.chmod(0o755)
    patch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_activity_is_that_of_each_gpu_by_its_uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    dcgm = Dcgm()
    expected = {
        "dcgm": [
            {
                "uuid": "GPU-34bf77d1-c686-6821-79a8-32d326c5039c",
                "DCGM_FI_PROF_SM_ACTIVE": 0.912,
                "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.521,
            },
            {"uuid": "GPU-f5046fa5-3db4-45e8-870a-dc1376becaa5", "DCGM_FI_PROF_SM_ACTIVE": 0.905},
        ]
    }
    assert dcgm() == dcgm() == expected
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["discovery -l", *["dmon -e 1002,1004 -d 200 -c 2"] * 2], "UUIDs are asked for once"


def test_a_program_that_fails_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, code=255)
    dcgm = Dcgm()
    assert dcgm() == dcgm() == {}
    assert (tmp_path / "calls").read_text().splitlines() == ["discovery -l"], "no host engine runs"


def test_a_node_without_dcgm_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Dcgm()() == {}


def test_what_is_no_share_is_left_out() -> None:
    shown = "GPU 0     9.3   nan\nGPU 1  -0.1  1e3\nGPU x 0.1 0.2\nGPU-I 0  0.5  0.5\nGPU 2 0.5\nGPU 3  1  0.25\n"
    assert activity_in(shown) == {"3": {"DCGM_FI_PROF_SM_ACTIVE": 1.0, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.25}}
