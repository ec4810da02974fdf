"""The sizes that go with readable code: no module over 400 lines, no function over 40."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 40
NOT_OURS = frozenset({"build", "dist", "runs"})


def problems(path: Path) -> Iterator[str]:
    """What is too long in a file."""
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    if lines > MAX_MODULE_LINES:
        yield f"{path}: {lines} lines; at most {MAX_MODULE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines; at most {MAX_FUNCTION_LINES}"


def main() -> int:
    """Check every Python file of the project; 1 where one is too long."""
    rooms = [path for path in Path().iterdir() if path.is_dir() and path.name not in NOT_OURS and path.name[0] != "."]
    found = [problem for room in rooms for path in sorted(room.rglob("*.py")) for problem in problems(path)]
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
