"""Software stacks of the micro suite, by name."""

from collections.abc import Callable
from importlib.util import find_spec

from aiperf.registry import Registry
from replica.measure.micro.native_library import why_no_library
from replica.measure.micro.stacks.contract import Stack

STACKS: Registry[Callable[[], Stack]] = Registry(
    "stack",
    {
        "tensorflow": "replica.measure.micro.stacks.tensorflow:TensorFlowStack",
        "torch": "replica.measure.micro.stacks.torch:TorchStack",
        "jax": "replica.measure.micro.stacks.jax:JaxStack",
        "native": "replica.measure.micro.stacks.native:NativeStack",
    },
)


def missing(name: str) -> str:
    """The reason why a stack cannot be used here; empty if it can."""
    if name == "native":
        return why_no_library()
    return "" if find_spec(name) is not None else f"{name} is not installed"
