"""Known vulnerabilities of locked packages: `python -m tools.audit_packages LOCK...`.

PyPA's pip-audit does it, in an environment of its own below `build/`, with PyPI's advisories. Exit
codes: 0 none is known, 1 some are, 3 nothing is known of some packages, for instance since PyPI
itself cannot be reached: a mirror has packages, but no advisories.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.environment import ROOT, Environment, NotMadeError, Part, key_of

VERSION = "2.10.1"
FOLDER = ROOT / "build" / "audit-packages"


def main(locks: list[str]) -> int:
    """Ask about every lock file."""
    wanted = f"pip-audit=={VERSION}"
    part = Part("pip-audit", key_of(words=[wanted]), lambda environment: environment.pip("install", wanted))
    try:
        Environment(FOLDER).make([part])
    except NotMadeError as error:
        print(f"audit-packages: NOT DONE: pip-audit cannot be installed: {error}")
        return 3
    program = FOLDER / "bin" / "pip-audit"
    codes = [audit(program, lock) for lock in locks]
    code = 1 if 1 in codes else max(codes, default=0)
    print(f"audit-packages: {'no vulnerability is known' if code == 0 else 'VULNERABLE' if code == 1 else 'NOT DONE'}")
    return code


def audit(program: Path, lock: str) -> int:
    """Ask about one lock file, and print what is known."""
    options = ("--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off")
    command: list[str | Path] = [program, *options, "--requirement", lock]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages: list[dict[str, Any]] = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"{lock}: not audited: {' '.join(result.stderr.split())[-500:]}")
        return 3
    vulnerable = [package for package in packages if package.get("vulns")]
    skipped = [package for package in packages if "skip_reason" in package]
    for package in vulnerable:
        names = ", ".join(found["id"] for found in package["vulns"])
        print(f"{lock}: {package['name']} {package['version']}: {names}")
    if skipped:
        print(f"{lock}: {len(skipped)} of {len(packages)} packages not audited: {skipped[0]['skip_reason']}")
    return 1 if vulnerable else 3 if skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
