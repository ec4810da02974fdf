"""Build the native stack of `aiperf micro`: C++ on oneDNN, from the wheels of requirements/native.

`make native` calls it. ONEDNN_ROOT names another installation with `include` and `lib`, such as a
newer one of a Linux distribution. The wheels of oneDNN from 2024 on need SYCL for CPUs, and with it
an OpenCL driver that no wheel brings: their engine finds no device.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "native"
LOCK = ROOT / "requirements" / "native.txt"
"""oneDNN 3.2, with hashes."""


def main() -> int:
    """Build `build/native/libaiperf_micro.so`; exit code 3 without a compiler."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        print("make native needs a C++ compiler (g++ or clang++)", file=sys.stderr)
        return 3
    FOLDER.mkdir(parents=True, exist_ok=True)
    prefix = Path(os.environ["ONEDNN_ROOT"]) if "ONEDNN_ROOT" in os.environ else _installed()
    target = FOLDER / "libaiperf_micro.so"
    fresh = target.with_suffix(".new")
    subprocess.run(
        [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{prefix / 'include'}", str(ROOT / "native/micro.cpp"),
         "-o", str(fresh), f"-L{prefix / 'lib'}", "-ldnnl", "-Wl,--allow-shlib-undefined", "-Wl,--disable-new-dtags",
         f"-Wl,-rpath,{prefix / 'lib'}"], check=True,
    )  # fmt: skip
    fresh.replace(target)
    print(target)
    return 0


def _installed() -> Path:
    """A virtual environment with the wheels."""
    prefix = FOLDER / "onednn"
    if not (prefix / "include" / "dnnl.hpp").is_file():
        subprocess.run([sys.executable, "-m", "venv", str(prefix)], check=True)
        pip = (str(prefix / "bin" / "pip"), "install", "--quiet", "--require-hashes", "-r", str(LOCK))
        subprocess.run(pip, check=True)
    return prefix


if __name__ == "__main__":
    sys.exit(main())
