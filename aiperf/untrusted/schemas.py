"""JSON schemas of structs: every key with its meaning, the docstring of its field."""

import ast
import inspect
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import msgspec


def schema_of(root: type[msgspec.Struct], modules: Sequence[ModuleType]) -> dict[str, Any]:
    """The JSON schema of a struct, whose parts are structs of these modules."""
    (made,), parts = msgspec.json.schema_components([root], ref_template="#/$defs/{name}")
    for name, part in parts.items():
        found = meanings(next(getattr(module, name) for module in modules if hasattr(module, name)))
        for key, about in part.get("properties", {}).items():
            about.pop("default", None)
            about["description"] = "Kind of this part." if key == "type" else found[key]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "$defs": parts}


def meanings(struct: type) -> dict[str, str]:
    """The docstrings of a class's fields, by field."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            found[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
    return found
