"""What a module needs that Python and AIPerf do not bring, by its source: nothing is imported."""

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.folders import ROOT

OWN = frozenset(path.parent.name for path in ROOT.glob("*/__init__.py"))
"""AIPerf's packages, and those of its repository."""

AT_ONCE = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.ClassDef)
"""Statements whose bodies are executed when a module is imported."""


def needed(module: str) -> dict[str, str]:
    """Packages of others that are imported with a module, and by which of ours.

    Of benchmarks everything counts, also what their functions import and the modules that they
    start; of all others what is executed when they are imported.
    """
    found: dict[str, str] = {}
    waiting, seen = [module, f"{module}.__main__"], set[str]()
    while waiting:
        name = waiting.pop()
        file = source_of(name)
        if name in seen or file is None:
            continue
        seen.add(name)
        if name.startswith("benchmarks.") and file.name == "__main__.py":  # starts the others of its folder
            waiting += [f"{name.rpartition('.')[0]}.{other.stem}" for other in file.parent.glob("*.py")]
        for other in imports_of(file, whole=name.partition(".")[0] == "benchmarks"):
            parts = other.split(".")
            if parts[0] in OWN:
                waiting += [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
            elif parts[0] not in sys.stdlib_module_names:
                found.setdefault(parts[0], name)
    return found


def source_of(module: str) -> Path | None:
    """The file of one of our modules; None if it is none."""
    base = ROOT.joinpath(*module.split("."))
    return next((file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()), None)


@functools.cache
def imports_of(file: Path, whole: bool) -> tuple[str, ...]:
    """The modules that a file imports, or starts by name if it is looked at as a whole."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if whole else _at_once(tree.body)
    found = [name for node in nodes for name in _named(node)]
    if whole:
        texts = [str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        found += [text for text in texts if text.startswith("benchmarks.") and source_of(text)]
    return tuple(found)


def _at_once(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in statements:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        if isinstance(statement, ast.Try) and any(
            "Import" in ast.unparse(item) or "NotFound" in ast.unparse(item) for item in statement.handlers
        ):
            continue
        yield statement
        if isinstance(statement, AT_ONCE):
            for part in ("body", "orelse", "finalbody"):
                yield from _at_once(getattr(statement, part, []))


def _named(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        # What is imported from a package may be a module of it.
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
