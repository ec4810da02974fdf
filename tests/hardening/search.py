"""A long search for hostile input: `python -m tests.hardening.search [--seconds 600] [TESTS]`.

Each property of a parser is tried for this long, with another seed each time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

PLACES = ("tests/hardening", "tests/unit/aiperf")

EXAMPLES = 2000
"""Of one start of a property."""

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def properties(words: list[str]) -> list[str]:
    """All tests that hypothesis generates input for."""
    command = [*PYTEST, "--collect-only", "-m", "hypothesis", *(words or PLACES)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in shown.splitlines() if "::" in line]


def search(test: str, seconds: float) -> bool:
    """Try a property for some time; False if an example was found that it does not hold for."""
    began_s, starts = time.monotonic(), 0
    environment = {**os.environ, "AIPERF_FUZZ_EXAMPLES": str(EXAMPLES)}
    while time.monotonic() - began_s < seconds:
        command = [*PYTEST, "--timeout", "7200", f"--hypothesis-seed={starts}", test]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        starts += 1
        if result.returncode:
            _show(result.stdout)
            return False
    _show(f"{test}: {starts} x {EXAMPLES} examples in {time.monotonic() - began_s:.0f} s")
    return True


def main() -> int:
    """Search; 1 if an example was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    arguments, words = parser.parse_known_args()
    found = [test for test in properties(words) if not search(test, arguments.seconds)]
    _show(f"search: found={len(found)} {' '.join(found)}".strip())
    return 1 if found else 0


def _show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
