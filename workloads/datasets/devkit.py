"""ILSVRC2012's development kit: the synset of every validation image.

Its numbers of classes are in a MATLAB file, which this module reads in a process of its own, with
limits of time and memory: such a file can make its reader allocate or loop at will.
"""

import gzip
import io
import json
import resource
import subprocess
import sys
from pathlib import Path

from aiperf.errors import DatasetError
from aiperf.processes import python_module
from aiperf.untrusted.reading import MIB, Limits, parse_outside, reason_of
from aiperf.untrusted.tar import tar_members

GROUND_TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
META = "ILSVRC2012_devkit_t12/data/meta.mat"

MOST_BYTES = 64 * MIB
"""Most bytes of the unpacked kit, and so of a file in it; the published one has a tenth."""


def validation_synsets(kit: Path) -> list[str]:
    """Read the synset of every validation image, in the order of their names.

    The kit numbers classes in its own way. Raises DatasetError, or OSError, EOFError, ValueError or
    zlib.error for a damaged archive.
    """
    content = _unpacked(kit, (META, GROUND_TRUTH))
    by_id = _synsets_by_id(content[META], f"{META} in {kit}")
    limits = Limits(size=MOST_BYTES)
    return parse_outside(
        content[GROUND_TRUTH],
        f"{GROUND_TRUTH} in {kit}",
        lambda data: [by_id[int(word)] for word in data.split()],
        limits,
        DatasetError,
        "a list of classes",
    )


def _unpacked(kit: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with gzip.open(kit) as stream:
        for member in tar_members(stream, MOST_BYTES):
            if member.name.removeprefix("./") in names and not member.folder:
                found[member.name.removeprefix("./")] = stream.read(member.size)
            if len(found) == len(names):
                break  # the rest of the kit are programs
    if missing := [name for name in names if name not in found]:
        raise DatasetError(f"{kit}: has no {' and no '.join(missing)}")
    return found


def _synsets_by_id(meta: bytes, name: str) -> dict[int, str]:
    done = subprocess.run(python_module("workloads.datasets.devkit"), input=meta, capture_output=True, check=False)
    # Ended by a signal: that of the limit of CPU seconds, or of a crash in a library.
    if done.returncode < 0:
        raise DatasetError(f"{name}: is not a file of classes: reading it takes too long or too much memory")
    if done.returncode > 0:
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["its reader failed"]
        raise DatasetError(f"{name}: is not a file of classes: {reason_of(ValueError(words[-1]))}")
    pairs: list[tuple[int, str]] = json.loads(done.stdout)
    return {int(number): str(synset) for number, synset in pairs}


CPU_SECONDS, MEMORY_BYTES = 20, 4 << 30
"""Limits for the MATLAB file, and the libraries that read it."""


def main() -> int:
    """Print pairs of ILSVRC2012_ID and WNID; 1 with the reason if there are none.

    The MATLAB file comes from standard input.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    import scipy.io  # noqa: PLC0415  (with the limits)

    try:
        synsets = scipy.io.loadmat(io.BytesIO(sys.stdin.buffer.read()), squeeze_me=True)["synsets"]
        pairs = [(int(entry["ILSVRC2012_ID"]), str(entry["WNID"])) for entry in synsets]
        print(json.dumps(pairs))  # noqa: T201
    except Exception as error:  # of any kind, as the file has it
        print(reason_of(error), file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
