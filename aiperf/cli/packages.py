"""AIPerf's own packages, and others of the same names.

The names are common ones. A package of the same name on the PYTHONPATH, in the folder of a `python
-m aiperf` or of another distribution would end the program somewhere in its middle.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

OWN = Path(__file__).resolve().parents[2]
"""The folder of the packages: a checkout, or site-packages."""

PACKAGES = (
    "aiperf",
    "analysis",
    "dashboard",
    "primary",
    "referee",
    "rehearsal",
    "replica",
    "search_space",
    "slurm",
    "workloads",
)
PYTHONS = ((3, 11), (3, 13))
"""The oldest and the newest supported Python."""

REMEDY = "unset PYTHONPATH, or install AIPerf in an environment of its own (python3 -m venv FOLDER)"


def foreign() -> list[str]:
    """Packages that would be imported in place of AIPerf's of the same name."""
    found = []
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None:
            found.append(f"{name} is missing in {OWN}: install AIPerf again")
            continue
        places = [Path(spec.origin).parent] if spec.origin else map(Path, spec.submodule_search_locations or ())
        place = next(iter(places), Path())
        if place.resolve() != OWN / name:
            found.append(f"{name} is of another package ({spec.origin or place}): {REMEDY}")
    return found


def shared() -> list[str]:
    """Other installed distributions that have files in AIPerf's packages."""
    from importlib import metadata  # noqa: PLC0415 - takes as long as all else that `aiperf --help` does

    owners = metadata.packages_distributions()
    return [
        f"{name} is also of the distribution {other}, which may have overwritten files in {OWN / name}"
        for name in PACKAGES
        for other in sorted({*owners.get(name, ())} - {"aiperf-hpc"})
    ]


def lost(error: ImportError) -> list[str]:
    """Explain why a module of these packages cannot be imported; empty for other packages."""
    if (error.name or "").partition(".")[0] not in PACKAGES:
        return []
    return [f"{text}: {REMEDY}" for text in shared()] or [f"{error}: install AIPerf again"]


def is_checkout() -> bool:
    """True if the code lies in AIPerf's sources, False if it was installed by a wheel."""
    return (OWN / "setup.cfg").is_file() and (OWN / "Makefile").is_file()


def to_install(extra: str, on_gpus: str = "") -> str:
    """Say how to install an extra, or its build for NVIDIA GPUs; ends with the command."""
    if is_checkout():
        other = f" (or '.[{on_gpus}]')" if on_gpus else ""
        return f"in the folder of AIPerf's sources: pip install '.[{extra}]'{other}"
    # Nothing is published under AIPerf's name, and a user of a wheel may have no sources.
    from importlib import metadata  # noqa: PLC0415

    named = [text.partition(";") for text in metadata.requires("aiperf-hpc") or ()]
    words = [f"'{package.strip()}'" for package, _, marker in named if f'extra == "{extra}"' in marker]
    other = f" (or {to_install(on_gpus)})" if on_gpus else ""
    return f"pip install {' '.join(words)}{other}"


def copied() -> list[str]:
    """Report that this command was copied from another environment; empty if it was not."""
    beside = Path(sys.argv[0]).absolute().parents[1] if os.sep in sys.argv[0] else Path(sys.prefix)
    if not (beside / "pyvenv.cfg").exists() or beside.samefile(sys.prefix):
        return []
    return [
        f"{sys.argv[0]} was copied or moved from {sys.prefix}, whose code would run: "
        f"make it anew: make -C {beside.parent} env"
    ]
