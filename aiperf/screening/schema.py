"""The JSON schema of screen.json, made of the classes of its outcome and their docstrings.

Its text is `screen.schema.json`.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from typing import Any

import msgspec

from aiperf.screening import fabric, messages, outcome
from aiperf.screening.outcome import Outcome


def schema() -> dict[str, Any]:
    """The JSON schema of the outcome of a screening, every key with its meaning."""
    (made,), parts = msgspec.json.schema_components([Outcome], ref_template="#/$defs/{name}")
    for name, part in parts.items():
        found = _meanings(name)
        for key, about in part.get("properties", {}).items():
            about.pop("default", None)
            about["description"] = "Kind of this part." if key == "type" else found[key]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "$defs": parts}


def _meanings(name: str) -> dict[str, str]:
    """The docstrings of a class's fields, by field."""
    found = next(getattr(module, name) for module in (outcome, fabric, messages) if hasattr(module, name))
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    assert isinstance(body, ast.ClassDef)
    meanings = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            meanings[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
    return meanings


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))  # noqa: T201
