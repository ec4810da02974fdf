"""Build the native stack of `aiperf micro`: C++ on oneDNN and, with --gpu, on cuDNN.

`make native` calls it. The libraries come as wheels, of requirements/native and
requirements/native-cuda. ONEDNN_ROOT names another installation with `include` and `lib`, such as a
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
CUDA_LOCK = ROOT / "requirements" / "native-cuda.txt"
"""cuDNN 9 and what it needs, with hashes: 1.3 GB."""
CUDA_HEADERS = ("cudnn", "cuda_runtime", "cuda_nvrtc", "cuda_nvcc", "cuda_cccl")
CUDA_LIBRARIES = {"cudnn": "libcudnn.so.9", "cuda_runtime": "libcudart.so.12", "cuda_nvrtc": "libnvrtc.so.12"}


def main() -> int:
    """Build `build/native/libaiperf_micro*.so`; exit code 3 without a compiler."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        print("make native needs a C++ compiler (g++ or clang++)", file=sys.stderr)
        return 3
    FOLDER.mkdir(parents=True, exist_ok=True)
    _build_onednn(compiler)
    if "--gpu" in sys.argv[1:]:
        _build_cudnn(compiler)
    return 0


def _build_onednn(compiler: str) -> None:
    named = os.environ.get("ONEDNN_ROOT")
    prefix = Path(named) if named else _installed("onednn", LOCK)
    words = [f"-I{prefix / 'include'}", f"-L{prefix / 'lib'}", "-ldnnl", f"-Wl,-rpath,{prefix / 'lib'}"]
    _build(compiler, "micro.cpp", "libaiperf_micro.so", words)


def _build_cudnn(compiler: str) -> None:
    prefix = _installed("cudnn", CUDA_LOCK)
    (packages,) = prefix.glob("lib/python3*/site-packages")
    words = [f"-isystem{packages / 'include'}"]
    words += [f"-isystem{packages / 'nvidia' / part / 'include'}" for part in CUDA_HEADERS]
    for part, name in CUDA_LIBRARIES.items():
        folder = packages / "nvidia" / part / "lib"
        words += [f"-L{folder}", f"-l:{name}", f"-Wl,-rpath,{folder}"]
    words.append(f"-Wl,-rpath,{packages / 'nvidia' / 'cublas' / 'lib'}")
    _build(compiler, "micro_cudnn.cpp", "libaiperf_micro_cudnn.so", words)


def _build(compiler: str, source: str, name: str, words: list[str]) -> None:
    target = FOLDER / name
    fresh = target.with_suffix(".new")
    subprocess.run(
        [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", str(ROOT / "native" / source), "-o", str(fresh), *words,
         "-Wl,--allow-shlib-undefined", "-Wl,--disable-new-dtags"], check=True,
    )  # fmt: skip
    fresh.replace(target)
    print(target)


def _installed(name: str, lock: Path) -> Path:
    """A virtual environment with the wheels of a lock file."""
    prefix, done = FOLDER / name, FOLDER / name / lock.name
    if not (done.is_file() and done.read_bytes() == lock.read_bytes()):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(prefix)], check=True)
        words = ("install", "--quiet", "--no-deps", "--require-hashes", "-r", str(lock))
        subprocess.run((str(prefix / "bin" / "pip"), *words), check=True)
        shutil.copyfile(lock, done)
    return prefix


if __name__ == "__main__":
    sys.exit(main())
