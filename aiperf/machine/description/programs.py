"""Versions of what a run computes and starts with, in addition to Python's packages."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib import metadata

from aiperf.answers import ask_and_wait
from aiperf.host import this_host

WHEELS = {"cuda_runtime": "nvidia-cuda-runtime", "cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl"}
"""Facts, and how the names of the packages with NVIDIA's libraries begin."""

ENDINGS = ("", "-cu11", "-cu12", "-cu13")
"""Ends of their names: the CUDA that they are for."""

ASKED = {"mpi": ("mpirun", "--version"), "slurm": ("scontrol", "--version")}
"""Facts, and the programs that know them; SLURM's is asked inside its jobs alone."""

PATIENCE_S = 5.0
"""Longest wait for a program to say its version."""

MOST_LINE = 100


def describe_programs(environment: Mapping[str, str] = os.environ) -> dict[str, str | int | float | None]:
    """CUDA, cuDNN, NCCL, MPI, SLURM, and the container with its image."""
    asked = [name for name in ASKED if name != "slurm" or "SLURM_JOB_ID" in environment]
    found = {**_wheels(), **{name: _version(*ASKED[name]) for name in asked}, **_container(environment)}
    return {name: text for name, text in found.items() if text}


@cache
def _wheels() -> dict[str, str]:
    """Versions of NVIDIA's libraries as packages, which TensorFlow, JAX and PyTorch load."""
    found = {}
    for fact, name in WHEELS.items():
        for ending in ENDINGS:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[fact] = metadata.version(f"{name}{ending}")
    return found


@cache
def _version(*words: str) -> str:
    """The first line of what a program says; empty without it."""
    answer = ask_and_wait(words, PATIENCE_S)
    lines = answer.output.splitlines() if answer.code == 0 else []
    return lines[0].strip()[:MOST_LINE] if lines else ""


def _container(environment: Mapping[str, str]) -> dict[str, str]:
    """The container's runtime and image, by what Apptainer, Podman and Docker leave in it."""
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if found := environment.get(name):
            return {"container": name.partition("_")[0].lower(), "container_image": found[:MOST_LINE]}
    root = this_host().root
    try:
        text = (root / "run/.containerenv").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"container": "docker"} if (root / ".dockerenv").exists() else {}
    image = re.search(r'^image="(.*)"$', text, re.MULTILINE)
    return {"container": "podman", **({"container_image": image[1][:MOST_LINE]} if image else {})}
