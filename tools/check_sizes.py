"""Sizes of readable code: lines of modules, classes and functions, modules of a folder, tables."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_MODULE_LINES = 500
MAX_CLASS_LINES = 200
MAX_FUNCTION_LINES = 50
MAX_FOLDER_MODULES = 15
MAX_OWN_LAYOUTS = 60
"""Statements that the formatter leaves alone: tables whose rows it would tear apart."""
OWN_LAYOUT = "  # fmt: " + "skip"
NOT_OURS = frozenset({"build", "dist", "runs"})


def problems(path: Path) -> Iterator[str]:
    """Everything in a file that is too long."""
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    if lines > MAX_MODULE_LINES:
        yield f"{path}: {lines} lines; at most {MAX_MODULE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            most = MAX_CLASS_LINES if isinstance(node, ast.ClassDef) else MAX_FUNCTION_LINES
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > most:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines; at most {most}"


def crowded(folder: Path) -> Iterator[str]:
    """A folder with more modules than one can take in at a glance."""
    modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    if len(modules) > MAX_FOLDER_MODULES:
        yield f"{folder}: {len(modules)} modules; at most {MAX_FOLDER_MODULES}"


def main() -> int:
    """Check every Python file and folder of the project; 1 if one is too long or crowded."""
    rooms = [path for path in Path().iterdir() if path.is_dir() and path.name not in NOT_OURS and path.name[0] != "."]
    files = [path for room in rooms for path in sorted(room.rglob("*.py"))]
    found = [problem for path in files for problem in problems(path)]
    found += [problem for folder in sorted({path.parent for path in files}) for problem in crowded(folder)]
    layouts = sum(path.read_text(encoding="utf-8").count(OWN_LAYOUT) for path in files)
    if layouts > MAX_OWN_LAYOUTS:
        found.append(
            f"{layouts} statements have a layout of their own ({OWN_LAYOUT.strip()}); at most {MAX_OWN_LAYOUTS}"
        )
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
