"""The architectures of a run, stored by canonical hash and read once."""

from aiperf.errors import ArchitectureError
from aiperf.files import write_atomically
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_architecture, to_json
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import is_there


class ArchitectureStore:
    """Reads and writes `models/<hash>/architecture.json`.

    Keeps what it has read: all of it, or the last `most` that were asked for.
    """

    def __init__(self, paths: RunPaths, most: int | None = None) -> None:
        self._paths = paths
        self._most = most
        self._known: dict[str, Architecture] = {}

    def save(self, architecture: Architecture) -> None:
        """Store an architecture unless it is there. Raises OSError."""
        path = self._paths.architecture(architecture.hash)
        if not is_there(path):
            write_atomically(path, to_json(architecture).encode())
        self._keep(architecture)

    def load(self, architecture_hash: str, expected: Architecture | None = None) -> Architecture:
        """The architecture of that hash. Raises ArchitectureError if it is missing or damaged.

        `expected` spares work if the file holds it (`read_architecture`).
        """
        architecture = self._known.get(architecture_hash)
        if architecture is None:
            path = self._paths.architecture(architecture_hash)
            architecture = read_architecture(path, expected)
            if architecture.hash != architecture_hash:
                raise ArchitectureError(f"{path}: holds the architecture {architecture.hash}: the file is foreign")
        self._keep(architecture)
        return architecture

    def _keep(self, architecture: Architecture) -> None:
        self._known.pop(architecture.hash, None)
        self._known[architecture.hash] = architecture
        if self._most is not None and len(self._known) > self._most:
            # Dictionaries keep the order of insertion, so the first one was asked for longest ago.
            del self._known[next(iter(self._known))]
