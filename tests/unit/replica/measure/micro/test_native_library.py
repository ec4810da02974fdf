"""The native stack takes cuDNN's library where CUDA sees a device, and oneDNN's elsewhere."""

import shutil
import subprocess
from pathlib import Path

import pytest

from replica.measure.micro.native_library import CUDNN, VARIABLE
from replica.measure.micro.stacks.native import NativeStack
from tests.support.needs import need

SOURCE = """
#include <stdint.h>
const char *micro_version(void) { return "%s"; }
int64_t micro_devices(void) { return %d; }
void *micro_create(const void *shape, char *error, int64_t size) { return 0; }
"""


def build(target: Path, version: str, devices: int) -> None:
    source = target.with_suffix(".c")
    source.write_text(SOURCE % (version, devices))
    compiler = shutil.which("gcc")
    assert compiler is not None
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(target)], check=True)


@pytest.mark.parametrize(
    ("devices", "version"), [(None, "on the CPU"), (0, "on the CPU"), (1, "on the GPU"), (8, "on the GPU")]
)
def test_cudnn_is_taken_where_there_is_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int | None, version: str
) -> None:
    need("gcc")
    build(tmp_path / "libaiperf_micro.so", "on the CPU", 0)
    if devices is not None:
        build(tmp_path / CUDNN, "on the GPU", devices)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "libaiperf_micro.so"))
    stack = NativeStack()
    assert stack.version() == version
    assert stack.device().startswith("CPU") == (version == "on the CPU")
