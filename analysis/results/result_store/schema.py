"""The JSON schema of a trend, made of its classes and their docstrings.

Its text is `analysis/trend.schema.json`.
"""

import json
from typing import Any

from aiperf.untrusted.schemas import schema_of
from analysis.results.result_store import trend


def schema() -> dict[str, Any]:
    """The JSON schema of what `aiperf trend --format json` prints."""
    return schema_of(trend.TrendDocument, (trend,))


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))  # noqa: T201
