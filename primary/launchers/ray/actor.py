"""The actor on a node: it holds the node's resources and passes calls on to the host process."""

from typing import Any

from aiperf.errors import LaunchError
from aiperf.processes import python_module
from primary.launchers.ray.calls import Callee


class NodeActor:
    """Passes calls on. Ray runs them concurrently, since they are coroutines."""

    def __init__(self) -> None:
        self._host = Callee(python_module("primary.launchers.ray.host"))

    async def call(self, method: str, words: dict[str, Any]) -> tuple[Any, tuple[str, bool] | None]:
        """The result of a call to the host process, or why it is refused and if to try again."""
        try:
            return await self._host.call(method, **words), None
        except LaunchError as error:
            return None, (str(error), error.restart)

    async def ready(self) -> None:
        """Returns as soon as the actor runs."""
