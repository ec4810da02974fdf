"""The frameworks that train, and what differs between them outside of their own folders."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

FrameworkName = Literal["tensorflow", "jax", "torch"]
"""`training.framework`; each has a folder in `replica/trainer/frameworks`."""

Pipeline = Literal["tensorflow", "numpy"]
"""An input pipeline for encoded images: tf.data, or one that needs no framework."""


class FrameworkTraits(NamedTuple):
    """The facts of a framework that settings, starters and messages go by."""

    title: str
    """Its name in messages."""
    gpu_extra: str
    """The extra with its build for NVIDIA GPUs; that for CPUs has the framework's name."""
    pipeline: Pipeline = "numpy"
    takes_horovod: bool = False
    """True if Horovod joins several ranks, which then have no meeting point of their own."""
    always_compiles: bool = False
    trains_science: bool = True


TRAITS: Mapping[str, FrameworkTraits] = {
    "tensorflow": FrameworkTraits("TensorFlow", "gpu", pipeline="tensorflow", takes_horovod=True),
    "jax": FrameworkTraits("JAX", "jax-cuda", always_compiles=True, trains_science=False),
    "torch": FrameworkTraits("PyTorch", "torch"),
}
"""By `FrameworkName`: the reference implementation first."""

DEFAULT_FRAMEWORK: FrameworkName = "tensorflow"


def traits_of(name: str) -> FrameworkTraits:
    """The traits of a framework; one that only another version of AIPerf knows has its name."""
    return TRAITS.get(name) or FrameworkTraits(name, name)


def names_where(fit: Callable[[FrameworkTraits], bool]) -> str:
    """The names of the frameworks that something fits: "jax or torch"."""
    return " or ".join(name for name, own in TRAITS.items() if fit(own))
