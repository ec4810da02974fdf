"""Frameworks and the decoder of images: how users install them, and imports of what is needed."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiperf.cli.packages import to_install
from aiperf.config.frameworks import TRAITS
from aiperf.host import this_host
from aiperf.registry import uncollected

if TYPE_CHECKING:
    from aiperf.config.settings import RunConfig


def why_not_installed(framework: str) -> str | None:
    """The reason why this Python cannot train with a framework, with the remedy; None if it can."""
    missing = [name for name in (framework, "keras") if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    own = TRAITS[framework]
    title, on_gpus = own.title if framework in missing else "Keras", own.gpu_extra
    remedy = to_install(framework, on_gpus if on_gpus != framework else "")
    return f"{title} is not installed for {sys.executable}; install it {remedy}"


def missing_packages(config: "RunConfig") -> list[str]:
    """The reasons why this Python cannot train what a run trains, each with its remedy."""
    if config.training.trainer != "keras":
        return []
    reasons = [why_not_installed(config.training.framework)]
    if config.needs_data and config.run.data_dir is not None:  # digits have no files
        reasons.append(why_no_decoder(config.training.decoder))
    return [reason for reason in reasons if reason is not None]


def why_no_decoder(decoder: str) -> str | None:
    """The reason why this Python lacks the library that decodes images (`training.decoder`).

    It has the remedy. None if it does not lack it.
    """
    # To look for a module inside of a package imports the package.
    if decoder != "dali" or all(importlib.util.find_spec(name) for name in ("nvidia", "nvidia.dali")):
        return None
    return f"training.decoder: NVIDIA DALI is not installed for {sys.executable}; install it {to_install('dali')}"


def use_onednn() -> None:
    """Have TensorFlow compute by oneDNN on any x86 processor, before it is imported.

    By itself it uses oneDNN, which has kernels from SSE4.1 on, only with AVX512-VNNI or later
    instructions (`IsMklEnabled` in its util/port.cc). Its own kernels train ResNet-50 at 32 x 32 at
    a fifth of that speed (docs/performance.md). On ARM few processors have fast kernels in oneDNN,
    and TensorFlow knows them. A variable that is set stays.
    """
    if "sse4_1" in this_host().cpu_flags():
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


UNUSED = ("cv2", "matplotlib", "pandas", "sklearn")
"""Packages that Keras imports if they are installed: for charts, for tables, for a wrapper."""


def import_lean(name: str) -> Any:
    """Import a framework, and spare half of the seconds and a quarter of the memory that it takes.

    TensorFlow imports Keras, and JAX, for a converter; Keras imports JAX to save checkpoints,
    whatever its own framework is. Nothing changes if they were imported before. Raises ImportError
    if the framework is not installed.
    """
    if (loaded := sys.modules.get(name)) is not None:
        return loaded
    if name == "tensorflow":
        use_onednn()
    without_jax = name == "tensorflow" or (name == "keras" and os.environ.get("KERAS_BACKEND") != "jax")
    with uncollected(), hidden(*UNUSED, *(("jax",) if without_jax else ())):
        return importlib.import_module(name)


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Meanwhile these packages look as if they were not installed, unless they are imported."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None stops an import
    try:
        yield
    finally:
        for name in absent:
            if sys.modules.get(name) is None:
                sys.modules.pop(name, None)
