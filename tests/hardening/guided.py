"""A search for hostile input that coverage guides: Atheris, if it is installed.

    python -m tests.hardening.guided records|archives|manifests [-max_total_time=600]

Further words are libFuzzer's. An input that ends in another exception than the program's own is
written to the working directory, and the exit code is not 0. Atheris is a package of its own
(`pip install atheris`): it has no build for every Python.
"""

import gzip
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from aiperf.errors import AiperfError

Reader = Callable[[bytes, Path], object]
"""Reads bytes, in an empty folder if it needs files."""


def _records() -> Reader:
    from aiperf.records.history_files import decode_lines

    return lambda data, _: decode_lines("replica-0000-1.jsonl", enumerate(data.split(b"\n"), start=1))


def _archives() -> Reader:
    from analysis.results.submission_package import open_archive

    def read(data: bytes, folder: Path) -> object:
        (folder / "x.tar.gz").write_bytes(gzip.compress(data, 1))
        (folder / "unpacked").mkdir()
        return open_archive(folder / "x.tar.gz", folder / "unpacked")

    return read


def _manifests() -> Reader:
    from aiperf.run_directory.manifest import read_manifest
    from aiperf.run_directory.paths import RunPaths

    def read(data: bytes, folder: Path) -> object:
        RunPaths(folder).run.write_bytes(data)
        return read_manifest(RunPaths(folder))

    return read


READERS = {"records": _records, "archives": _archives, "manifests": _manifests}


def write_seeds(name: str, folder: Path) -> None:
    """Honest input of a reader, which the search changes."""
    from analysis.results.submission_package import write_archive
    from tests.support.hand_made import HandMadeRun

    run = HandMadeRun(folder / "run").at(0).release(60).at(1).start_trial(1).at(30).epoch(1, 1).support(60).end(60)
    write_archive(run.paths, folder / "run.tar.gz", {"name": "system"})
    (folder / "seeds").mkdir()
    if name == "archives":
        (folder / "seeds" / "archive").write_bytes(gzip.decompress((folder / "run.tar.gz").read_bytes()))
    elif name == "manifests":
        (folder / "seeds" / "manifest").write_bytes(run.paths.run.read_bytes())
    else:
        for number, line in enumerate(run.paths.history_file("replica-0000-1").read_bytes().splitlines()):
            (folder / "seeds" / str(number)).write_bytes(line)


def attempt(reader: Reader, data: bytes) -> None:
    """Hand over an input; only the program's own errors are answers."""
    # In the memory where there is such a file system: a disk is slower than the readers.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="aiperf-guided-", dir=memory) as folder:
        try:
            reader(data, Path(folder))
        except (AiperfError, OSError) as error:
            assert 0 < len(str(error)) < 2048, str(error)[:300]


def main() -> int:
    """Search until libFuzzer ends the process."""
    if len(sys.argv) < 2 or sys.argv[1] not in READERS:
        sys.stderr.write(f"name a reader: {', '.join(READERS)}\n")
        return 2
    if importlib.util.find_spec("atheris") is None:
        sys.stdout.write(f"{sys.argv[1]}: no search guided by coverage: Atheris is not installed\n")
        return 0
    atheris = importlib.import_module("atheris")
    # Not removed: the search ends the process.
    folder = Path(tempfile.mkdtemp(prefix="aiperf-guided-seeds-"))
    with atheris.instrument_imports(include=["aiperf", "analysis"]):
        reader = READERS[sys.argv[1]]()
        write_seeds(sys.argv[1], folder)
    words = [sys.argv[0], "-max_len=262144", str(folder / "seeds"), *sys.argv[2:]]
    atheris.Setup(words, lambda data: attempt(reader, data))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
