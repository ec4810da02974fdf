"""Commands in the environment that a node's software needs."""

from collections.abc import Sequence

from aiperf.config.sections.cluster import EnvironmentSection


def on_node(settings: EnvironmentSection, command: Sequence[str]) -> tuple[str, ...]:
    """The command line that runs a command as `environment` says: activated, in a container."""
    contained = (*settings.container, *command)
    if settings.activate is None:
        return contained
    # The command is passed as arguments, so that the shell interprets nothing in it.
    return ("bash", "-c", f'{settings.activate}\nexec "$@"', "bash", *contained)
