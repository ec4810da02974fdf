"""Test an implementation of AIPerf: `python conformance/run.py COMMAND [WORD ...]`.

It needs Python 3.10 and nothing else. The command reads a request a line from its standard input
and writes an answer a line; docs/specification.md describes both (section 11).
Exit code 0: every case is answered as expected.
"""

import contextlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

KIT = Path(__file__).resolve().parent / "kit"
TIMEOUT_S = 120.0
"""Seconds for one answer."""


def cases(kit: Path, folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each case and its request, whose paths are absolute; changed runs are made in a folder."""
    for case in json.loads((kit / "cases.json").read_text(encoding="utf-8")):
        request = {**case["request"]}
        for key in {"network", "run"} & set(request):
            request[key] = str(kit / request[key])
        if changes := case.get("changes"):
            request["run"] = shutil.copytree(request["run"], str(folder / case["name"].replace(" ", "-")))
            for name, change in json.loads((kit / changes).read_text(encoding="utf-8")).items():
                apply(Path(request["run"], name), change)
        yield case, request


def apply(file: Path, change: dict[str, Any] | None) -> None:
    """Change a file: `keep` lines of it, and `lines` that follow. None: remove it."""
    if change is None:
        file.unlink()
        return
    kept = file.read_bytes().split(b"\n")[: change["keep"]]
    file.write_bytes(b"\n".join([*kept, *(line.encode() for line in change["lines"])]))


def differences(case: dict[str, Any], answer: Any) -> list[str]:
    """What of an answer is not as expected, in words."""
    if not isinstance(answer, dict):
        return [f"the answer is {shown(answer)}, not an object"]
    found = [
        f"{key} is {shown(answer.get(key))}, not {shown(wanted)}"
        for key, wanted in case["expect"].items()
        if not equal(wanted, answer.get(key), case.get("tolerance", 1e-9))
    ]
    for key, items in case.get("at_least", {}).items():
        has = answer.get(key)
        if not isinstance(has, list) or not all(item in has for item in items):
            found.append(f"{key} is {shown(has)}, without all of {shown(items)}")
    return found


def equal(wanted: Any, found: Any, tolerance: float) -> bool:
    """True if the two are equal; numbers with a fraction are within a relative tolerance."""
    if isinstance(wanted, float):
        number = isinstance(found, int | float) and not isinstance(found, bool)
        return number and math.isclose(wanted, found, rel_tol=tolerance)
    if type(wanted) is not type(found):
        return False
    if isinstance(wanted, dict):
        return wanted.keys() == found.keys() and all(equal(wanted[key], found[key], tolerance) for key in wanted)
    if isinstance(wanted, list):
        return len(wanted) == len(found) and all(map(equal, wanted, found, [tolerance] * len(wanted)))
    return bool(wanted == found)


def shown(value: Any) -> str:
    """A value as JSON, not too long."""
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


class Program:
    """A command that answers requests. It is started again if it ends or takes too long."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, request: dict[str, Any]) -> Any:
        """The answer, or a text that says why there is none."""
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, encoding="utf-8")
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(TIMEOUT_S, process.kill)
        timer.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())
        except (OSError, ValueError) as error:
            self.end()
            return f"no answer: {error}"
        finally:
            timer.cancel()

    def end(self) -> None:
        """End the command."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(OSError):  # what it did not read is lost
                self._process.communicate()
            self._process = None


def conform(ask: Callable[[dict[str, Any]], Any], kit: Path = KIT) -> dict[str, list[str] | None]:
    """The differences of each case by its name; None for a proposal that is not supported."""
    found: dict[str, list[str] | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case, request in cases(kit, Path(folder)):
            answer = ask(request)
            optional = request["task"] == "propose" and answer == {"unsupported": True}
            found[case["name"]] = None if optional else differences(case, answer)
    return found


def main(command: list[str]) -> int:
    """Test a command and print a line for each case."""
    if not command:
        print(__doc__)
        return 2
    program = Program(command)
    found = conform(program)
    program.end()
    for name, failures in found.items():
        print(f"{name:40} {'not supported' if failures is None else '; '.join(failures) or 'passed'}")
    failed = sum(bool(failures) for failures in found.values())
    print(f"{failed} of {len(found)} cases failed ({'scoring' if None in found.values() else 'scoring and search'})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
