"""The vocabulary of all rooms: networks, configuration, history list, rules, run directory.

For other programs it exports, each imported at its first use: `Architecture` and `resnet` (layer
graphs), `count` (operations per image, rule set aiperf-1), `load_run` and
`load_store` (a run, and a store of results, as pandas frames). See docs/api.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiperf.network.architecture import Architecture
    from aiperf.network.operations import count

    load_run: Any
    load_store: Any
    resnet: Any

__version__ = "0.2.0"

__all__ = ["Architecture", "__version__", "count", "load_run", "load_store", "resnet"]

_EXPORTS = {
    "Architecture": "aiperf.network.architecture",
    "count": "aiperf.network.operations",
    "load_run": "analysis.results.loading",
    "load_store": "analysis.results.result_store.store",
    "resnet": "search_space.resnet",
}
"""The module of each exported name. Modules are named, not imported: this room imports no other."""


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
