"""The command `aiperf`, which starts no other package of that name."""

import signal
import sys


def main() -> int:
    """Run the command line; exit code 3 if `aiperf` is of another package."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:  # Ctrl-C ends a program whose modules are still being imported, without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from importlib.util import find_spec  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    own, spec = Path(__file__).resolve().with_name("aiperf"), find_spec("aiperf")
    found = spec.origin if spec and spec.origin else "a folder without code, or nothing"
    if Path(found).resolve().parent != own:
        sys.stderr.write(
            f"aiperf: the package aiperf would be {found}, and is not AIPerf's ({own}): "
            "unset PYTHONPATH, or install AIPerf in an environment of its own (python3 -m venv FOLDER)\n"
        )
        return 3
    from aiperf.cli.waiting import begin  # noqa: PLC0415

    begin(sys.argv[1:])
    from aiperf.__main__ import start  # noqa: PLC0415

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return start()
