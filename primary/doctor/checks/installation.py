"""The installed AIPerf: whose packages are imported, and by which Python."""

import platform
from pathlib import Path

from aiperf import __version__
from aiperf.cli.packages import OWN, PYTHONS, REMEDY, foreign, shared
from primary.doctor.contract import Evidence, Finding, Remark, together

_SUPPORTED = " to ".join(".".join(map(str, version)) for version in PYTHONS)


def check_installation(evidence: Evidence) -> list[Finding]:
    """Packages of the same names, another checkout, Pythons that are not tested."""
    found = [Finding("installation", "warning", text, REMEDY) for text in (*foreign(), *shared())]
    here = Path.cwd()
    if (here / "aiperf" / "__init__.py").exists() and here.resolve() != OWN and (here / "setup.cfg").exists():
        text = f"this folder has AIPerf's sources, and the code that runs is that of {OWN}"
        found.append(Finding("installation", "warning", text, "make env && . .venv/bin/activate"))
    found += together(
        "installation",
        [
            _remark(item.replica, str(item.node.get("python")))
            for item in evidence.facts()
            if not _supported(item.node.get("python"))
        ],
    )
    if not _supported(platform.python_version()):
        found.append(Finding("installation", "warning", *_other(platform.python_version())))
    return found or [Finding("installation", "ok", f"aiperf {__version__}, Python {platform.python_version()}: {OWN}")]


def _supported(version: object) -> bool:
    """Check that a Python is of a supported release; an unknown version passes."""
    if not isinstance(version, str):
        return True
    first, second = (*version.split("."), "", "")[:2]
    return first.isdigit() and second.isdigit() and PYTHONS[0] <= (int(first), int(second)) <= PYTHONS[1]


def _other(version: str) -> tuple[str, str]:
    return f"Python {version}; supported are {_SUPPORTED}", "make env PYTHON=python3.12"


def _remark(replica: int, version: str) -> Remark:
    return Remark(replica, "warning", *_other(version))
