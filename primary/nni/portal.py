"""Requests to NNI's manager over its own interface on this machine."""

import os
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from primary.nni.library import rest

LOOPBACK = "127.0.0.1"

PRELOADED = Path(__file__).with_name("portal.cjs")
"""Guards the portal, from inside of NNI's manager."""

PATIENT = Path(__file__).with_name("patience.cjs")
"""Lets what NNI's manager writes wait for storage, by the policy in `POLICY`."""

POLICY = "AIPERF_NNI_PATIENCE"
"""Variable with the seconds of patience, and the names of the errors that may pass, as JSON."""

GUARDED = "AIPERF_NNI_GUARDED"
"""Set for the processes of a guarded manager, to a name that it alone has."""

CHANNEL = "NNI_TUNER_COMMAND_CHANNEL"
"""The address of the manager that started a tuner."""


def own_channel() -> str:
    """The address by which a tuner reaches the manager that started it, and no later one."""
    return f"{os.environ[CHANNEL]}?manager={os.environ[GUARDED]}"


def port_of(variable: str) -> int:
    """The manager's port, from an address that NNI gives its processes in a variable."""
    port = urlsplit(os.environ[variable]).port
    assert port is not None, f"{variable} has no port"
    return port


def end_in(port: int, left_s: float) -> None:
    """Let the experiment last this much longer. Raises requests.RequestException."""
    profile: dict[str, Any] = rest.get(port, "/experiment")
    profile["params"]["maxExperimentDuration"] = f"{max(1, ceil(profile['execDuration'] + left_s))}s"
    rest.put(port, "/experiment?update_type=MAX_EXEC_DURATION", profile)
