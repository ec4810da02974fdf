"""The JSON schema of screen.json, made of the classes of its outcome and their docstrings.

Its text is `screen.schema.json`.
"""

import json
from typing import Any

from aiperf.screening import fabric, messages, outcome
from aiperf.screening.outcome import Outcome
from aiperf.untrusted.schemas import schema_of


def schema() -> dict[str, Any]:
    """The JSON schema of the outcome of a screening, every key with its meaning."""
    return schema_of(Outcome, (outcome, fabric, messages))


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))  # noqa: T201
