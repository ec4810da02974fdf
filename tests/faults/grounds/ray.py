"""Replicas on the nodes of a real Ray cluster on this machine."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.faults.grounds.contract import Place
from tests.support.hosts.ray_cluster import start_ray

NODES = 3


class Ray:
    """The launcher `ray`."""

    pace = 8.0

    def missing(self) -> str:
        return "" if find_spec("ray") else "ray"

    @contextmanager
    def open(self, folder: Path) -> Iterator[Place]:
        # Not in `folder`: the paths of Ray's sockets must be short.
        with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as short:
            nodes = start_ray(Path(short), NODES)
            settings = [word for name, value in nodes.settings.items() for word in ("--set", f"{name}={value}")]
            try:
                yield Place(("--launcher", "ray", *settings))
            finally:
                nodes.stop()


RAY = Ray()
