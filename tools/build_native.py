"""Build the native stack of `aiperf micro`: C++ on oneDNN and, with --gpu, on cuDNN.

`make native` calls it. The libraries come as wheels, of requirements/native and
requirements/native-cuda. ONEDNN_ROOT names another installation with `include` and `lib`, such as a
newer one of a Linux distribution. The wheels of oneDNN from 2024 on need SYCL for CPUs, and with it
an OpenCL driver that no wheel brings: their engine finds no device.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tools.environment import ROOT, Environment, NotMadeError, Part, key_of, machine

FOLDER = ROOT / "build" / "native"
LOCK = ROOT / "requirements" / "native.txt"
"""oneDNN 3.2, with hashes."""
CUDA_LOCK = ROOT / "requirements" / "native-cuda.txt"
"""cuDNN 9 and what it needs, with hashes: 1.3 GB."""
CUDA_HEADERS = ("cudnn", "cuda_runtime", "cuda_nvrtc", "cuda_nvcc", "cuda_cccl")
CUDA_LIBRARIES = {"cudnn": "libcudnn.so.9", "cuda_runtime": "libcudart.so.12", "cuda_nvrtc": "libnvrtc.so.12"}


def main(words: list[str]) -> int:
    """Build `build/native/libaiperf_micro*.so`; exit code 3 without a compiler, 1 if that fails."""
    parser = argparse.ArgumentParser(prog="python -m tools.build_native")
    parser.add_argument(
        "--gpu", default="", choices=("", "0", "1"), help="1: also on cuDNN; 0: not; default: by driver"
    )
    forced = parser.parse_args(words).gpu
    # With words, as in CXX="ccache g++".
    compiler = shlex.split(os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or "")
    if not compiler:
        print("make native needs a C++ compiler (g++ or clang++)", file=sys.stderr)
        return 3
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        _build_onednn(compiler)
        if machine(forced).gpu:
            _build_cudnn(compiler)
    except (NotMadeError, OSError, subprocess.CalledProcessError) as error:
        print(f"make native: {error}", file=sys.stderr)
        return 1
    return 0


def _build_onednn(compiler: list[str]) -> None:
    named = os.environ.get("ONEDNN_ROOT")
    prefix = Path(named) if named else _installed("onednn", LOCK)
    words = [f"-I{prefix / 'include'}", f"-L{prefix / 'lib'}", "-ldnnl", f"-Wl,-rpath,{prefix / 'lib'}"]
    _build(compiler, "micro.cpp", "libaiperf_micro.so", words)


def _build_cudnn(compiler: list[str]) -> None:
    prefix = _installed("cudnn", CUDA_LOCK)
    (packages,) = prefix.glob("lib/python3*/site-packages")
    words = [f"-isystem{packages / 'include'}"]
    words += [f"-isystem{packages / 'nvidia' / part / 'include'}" for part in CUDA_HEADERS]
    for part, name in CUDA_LIBRARIES.items():
        folder = packages / "nvidia" / part / "lib"
        words += [f"-L{folder}", f"-l:{name}", f"-Wl,-rpath,{folder}"]
    words.append(f"-Wl,-rpath,{packages / 'nvidia' / 'cublas' / 'lib'}")
    _build(compiler, "micro_cudnn.cpp", "libaiperf_micro_cudnn.so", words)


def _build(compiler: list[str], source: str, name: str, words: list[str]) -> None:
    """Compile, unless the library is of the same sources, compiler and place."""
    command = [
        *compiler,
        "-std=c++17",
        "-O2",
        "-shared",
        "-fPIC",
        str(ROOT / "native" / source),
        *words,
        "-Wl,--allow-shlib-undefined",
        # The places of libraries become RPATH, which unlike RUNPATH is also searched for what they
        # need in turn.
        "-Wl,--disable-new-dtags",
    ]
    key = key_of(*sorted((ROOT / "native").iterdir()), words=command)
    target, made_of = FOLDER / name, FOLDER / f"{name}.key"
    if not (target.exists() and made_of.exists() and made_of.read_text() == key):
        # An interrupted build must not leave the old key next to a new library: it would fit again
        # as soon as the change is undone.
        made_of.unlink(missing_ok=True)
        fresh = target.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-o", str(fresh)], check=True)
        fresh.replace(target)
        made_of.write_text(key)
    print(target)


def _installed(name: str, lock: Path) -> Path:
    """A virtual environment with the wheels of a lock file."""
    words = ("install", "--no-deps", "--require-hashes", "-r", lock)
    part = Part(name, key_of(lock), lambda environment: environment.pip(*words))
    made = Environment(FOLDER / name)
    made.make([part])
    return made.folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
