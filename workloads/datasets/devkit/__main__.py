"""The program that reads a MATLAB file of classes from standard input and prints them as JSON.

It has limits of time and memory: such a file can make its reader allocate or loop at will.
"""

import io
import json
import resource
import sys

from aiperf.untrusted.reading import reason_of

CPU_SECONDS, MEMORY_BYTES = 20, 4 << 30
"""Limits for the file, and the libraries that read it."""


def main() -> int:
    """Print pairs of ILSVRC2012_ID and WNID; 1 with the reason if there are none."""
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
