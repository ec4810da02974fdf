"""Build Horovod for the installed TensorFlow, or give the wheel that was built before.

Prints the path of the wheel. A number as its only word is the most compilers at a time.
Horovod's last release (0.28.1) is older than today's TensorFlow and needs settings that its own
build does not make: those below.
Environment variables of Horovod's build (HOROVOD_GPU_OPERATIONS=NCCL, HOROVOD_NCCL_HOME,
HOROVOD_CUDA_HOME, ...) are passed on and are part of the key.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path

VERSION = "0.28.1"
SOURCE_SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
PATCHES = (
    # Does not compile with today's XLA headers; only Horovod's own XLA operations need it.
    (
        "horovod/tensorflow/CMakeLists.txt",
        'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")\n',
        "",
    ),
    # Today's TensorFlow links a copy that is compiled as C++17.
    ("CMakeLists.txt", "add_subdirectory(third_party/gloo)\n", "add_subdirectory(third_party/gloo EXCLUDE_FROM_ALL)\n"),
    # Debug information takes a quarter of the time, and fifteen times the space.
    (
        "CMakeLists.txt",
        "# Add architecture specific optimization flags\n",
        'string(REPLACE "-g " "" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")\n',
    ),
)
"""Files of the source, and what is replaced there by what."""

UNITY = (
    "horovod/tensorflow/CMakeLists.txt",
    "add_library(${TF_TARGET_LIB} SHARED ${SOURCES} ${TF_SOURCES})\n",
    "add_library(${TF_TARGET_LIB} SHARED ${SOURCES} ${TF_SOURCES})\n"
    "set_target_properties(${TF_TARGET_LIB} PROPERTIES UNITY_BUILD ON)\n",
)
"""Eight files in one compilation: headers are most of the work, which it lessens by a quarter."""

FRAMEWORKS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
}

NO_CACHE = 3
"""Exit code without a folder for the wheel."""
CACHE_REMEDY = "set XDG_CACHE_HOME to a folder that can be written"


def settings() -> dict[str, str]:
    """Horovod's build settings: TensorFlow, Gloo, MPI if installed, and the user's own."""
    mpi = {"HOROVOD_WITH_MPI": "1"} if shutil.which("mpicxx") else {"HOROVOD_WITHOUT_MPI": "1"}
    users = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
    return {**FRAMEWORKS, **mpi, **users}


def tensorflow_version() -> str:
    """The installed TensorFlow, whichever distribution it comes from."""
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            return f"{name}-{metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    sys.exit("install TensorFlow first: Horovod is built against it")


def cache_folder() -> Path:
    """Folder for wheels of this combination: all that changes the binary changes the folder."""
    # Homes are shared by nodes with other processors, C libraries and MPIs.
    node = sysconfig.get_platform(), platform.libc_ver(), os.path.realpath(shutil.which("mpicxx") or "")
    key = repr((VERSION, tensorflow_version(), sys.implementation.cache_tag, node, sorted(settings().items())))
    key += Path(__file__).read_text(encoding="utf-8")
    # As aiperf.files.cache_folder, which an image does not have yet when this program runs.
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (
        Path(base if base.startswith("/") else Path.home() / ".cache")
        / "aiperf"
        / f"horovod-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    )


def made_cache_folder() -> Path:
    """Make the folder for the wheel. Raises OSError if it cannot be written."""
    try:
        cache = cache_folder()
    except RuntimeError as error:  # a user without a name, and without HOME
        raise OSError(str(error)) from error
    cache.mkdir(parents=True, exist_ok=True)
    if not list(cache.glob("*.whl")) and not os.access(cache, os.W_OK):
        raise PermissionError(f"{cache} cannot be written")
    return cache


def fetch(folder: Path) -> Path:
    """Download and unpack the source distribution, checked by its hash."""
    requirement = folder / "horovod.txt"
    requirement.write_text(f"horovod=={VERSION} --hash=sha256:{SOURCE_SHA256}\n", encoding="utf-8")
    run = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run(
        [*run, "--no-build-isolation", "--require-hashes", "-r", str(requirement), "-d", str(folder)],
        check=True,
        stdout=sys.stderr,
    )
    with tarfile.open(folder / f"horovod-{VERSION}.tar.gz") as archive:
        # Debian 12's Python 3.11.2 has no filters yet; the hash has vouched for the content.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder / f"horovod-{VERSION}"


def patch(source: Path) -> None:
    """Leave out what does not compile, and what nobody needs."""
    # Nobody has tried it with Horovod's parts for GPUs.
    for_gpus = any(name.startswith("HOROVOD_GPU") for name in settings())
    for name, old, new in PATCHES if for_gpus else (*PATCHES, UNITY):
        file = source / name
        text = file.read_text(encoding="utf-8")
        if old not in text:
            sys.exit(f"{file}: has no line {old.strip()!r}")
        file.write_text(text.replace(old, new), encoding="utf-8")


def build(source: Path, folder: Path, compilers: int) -> None:
    """Compile the wheel into `folder`."""
    include = Path(sysconfig.get_path("purelib")) / "tensorflow/include/external"
    environment = {
        **os.environ,
        **settings(),
        "CPLUS_INCLUDE_PATH": f"{include / 'highwayhash'}:{include / 'farmhash_archive/src'}",
        "MAKEFLAGS": f"-j{compilers}",  # below `make horovod` there are flags already, which name one job
        # CMake 4 refuses what says that it needs less, as Gloo does.
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        # 1980-01-01, the earliest date that a wheel, which is a ZIP file, can state.
        "SOURCE_DATE_EPOCH": "315532800",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    with (folder / "build.log").open("w", encoding="utf-8") as log:
        result = subprocess.run(command, cwd=source, env=environment, stdout=log, stderr=log, check=False)
    if result.returncode:
        kept = cache_folder() / "build.log"
        shutil.copy(folder / "build.log", kept)
        sys.exit(f"Horovod could not be built; the log is {kept}")


def main(words: list[str]) -> int:
    """Print the path of the wheel, and build it if need be; exit code 3 without a folder for it."""
    compilers = int(words[0]) if words else len(os.sched_getaffinity(0))
    try:
        cache = made_cache_folder()
    except OSError as error:
        print(f"Horovod's wheel has no place: {error}; {CACHE_REMEDY}", file=sys.stderr)
        return NO_CACHE
    if not list(cache.glob("*.whl")):
        print("building Horovod (1 to 2 minutes) ...", file=sys.stderr)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            source = fetch(folder)
            patch(source)
            build(source, folder, compilers)
            for wheel in folder.glob("*.whl"):
                part = cache / f"{wheel.name}.part"
                shutil.copy(wheel, part)
                # Another build that looks meanwhile must find a whole wheel or none.
                part.replace(cache / wheel.name)
    print(next(cache.glob("*.whl")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
