"""NNI's messages as plain JSON.

NNI reads what arrives with `nni.load`, in which JSON may name Python symbols, which it imports and
calls.
"""

import json
from typing import Any

from primary.nni.trial_imports import nni


def load(text: str) -> Any:
    """The data of a JSON document. Raises ValueError."""
    return json.loads(text)


def read_plainly() -> None:
    """Let this process read all of NNI's messages as plain JSON: websocket, pipe, parameters."""
    nni.load = load
