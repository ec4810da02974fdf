"""A long search for hostile input: `python -m tests.hardening.search [--seconds 600] [TESTS]`.

The properties of one file of tests are those of a parser and share its time. Each is started with
another seed as often as its part of the time allows.
"""

import argparse
import os
import subprocess
import sys
import time
from collections import defaultdict

from tests.support.fuzz import VARIABLE

PARSERS = (
    "tests/hardening/archives",
    "tests/hardening/readers",
    "tests/hardening/test_documents.py",
    "tests/hardening/test_settings.py",
    "tests/unit/aiperf/records",
    "tests/unit/aiperf/network",
    "tests/unit/aiperf/test_fuzz.py",
    "tests/unit/aiperf/wire/test_messages.py",
)

EXAMPLES, MOST_EXAMPLES = 1000, 100_000
"""Of the first start of a property, and of any: hypothesis keeps what it has tried."""

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def properties(words: list[str]) -> dict[str, list[str]]:
    """All tests that hypothesis generates input for, by file."""
    command = [*PYTEST, "--collect-only", "-m", "hypothesis", *(words or PARSERS)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = defaultdict(list)
    for line in shown.splitlines():
        if "::" in line:
            found[line.split("::")[0]].append(line)
    return found


def search(test: str, seconds: float) -> bool:
    """Try a property for some time; False if an example was found that it does not hold for."""
    began_s, starts, examples, tried = time.monotonic(), 0, EXAMPLES, 0
    while (left_s := seconds - (time.monotonic() - began_s)) > 0:
        environment = {**os.environ, VARIABLE: str(examples)}
        command = [*PYTEST, "--timeout", "7200", f"--hypothesis-seed={starts}", test]
        started_s = time.monotonic()
        result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if result.returncode:
            _show(result.stdout)
            return False
        starts, tried = starts + 1, tried + examples
        took_s = time.monotonic() - started_s
        examples = max(EXAMPLES, min(MOST_EXAMPLES, int(examples * (left_s - took_s) / took_s)))
    _show(f"{test}: {tried} examples in {starts} starts and {time.monotonic() - began_s:.0f} s")
    return True


def main() -> int:
    """Search; 1 if an example was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="for each parser")
    arguments, words = parser.parse_known_args()
    found = []
    for tests in properties(words).values():
        found += [test for test in tests if not search(test, arguments.seconds / len(tests))]
    _show(f"search: found={len(found)} {' '.join(found)}".strip())
    return 1 if found else 0


def _show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
