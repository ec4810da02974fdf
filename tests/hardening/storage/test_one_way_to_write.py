"""One way to write below a run directory: `aiperf.files` and `aiperf.storage`."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.folders import ROOT

ROOMS = ("aiperf", "replica", "primary", "analysis")

WAYS = ("aiperf/files.py", "aiperf/storage/")

ELSEWHERE = {
    "aiperf/run_directory/disk.py": "the claim: it waits at the start only, when nothing else works",
    "analysis/results/submission_package.py": "an archive that a referee opens",
    "analysis/results/signatures.py": "temporary files of a signature",
    "primary/background/outputs.py": "the output of a run whose terminal is gone: like the terminal, it never waits",
    "primary/importing/cli.py": "a configuration for the user",
    "primary/launchers/relays/remote.py": "one file without this package, for any Python of a node",
    "primary/launchers/relays/task.py": "temporary files of a launcher",
    "primary/scaling/runs.py": "the lock of a series: NFS wants it opened for writing, nothing is written",
    "primary/nodes/probe_script.py": "one file without this package, for any Python of a node",
    "replica/measure/counting/source.py": "temporary files of `aiperf ops`",
    "workloads/datasets/": "data sets",
    "replica/agent/examine/facts.py": "a probe of the node, removed again",
    "aiperf/machine/oom_order.py": "/proc",
    "replica/measure/profile/cli.py": "temporary files of `aiperf profile`",
    "replica/measure/profile/step.py": "temporary files of `aiperf profile`",
    "replica/measure/screen/storage.py": "files whose writing is measured, removed again",
}
"""Files that are not below a run directory, or have a reason."""

WRITERS = {"write_text", "write_bytes", "touch", "posix_fallocate"}


def writes(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls that open a file for writing."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _writes(node))


def _writes(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in WRITERS:
        return not ast.unparse(node.func).endswith(("claim.touch", "_disk.touch"))
    if name == "open":
        values = [
            item.value
            for item in (*node.args, *(word.value for word in node.keywords))
            if isinstance(item, ast.Constant)
        ]
        modes = [value for value in values if isinstance(value, str) and set(value) <= set("rwaxbt+")]
        return any(set(mode) & set("wax+") for mode in modes) or "O_CREAT" in ast.dump(node)
    return name in ("FileHandler", "basicConfig") and any(word.arg == "filename" for word in node.keywords)


def test_no_other_module_opens_files_for_writing() -> None:
    found = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if not name.startswith((*WAYS, *ELSEWHERE)):
                found += [f"{name}:{node.lineno}: {ast.unparse(node)}" for node in writes(ast.parse(path.read_text()))]
    assert found == [], "use aiperf.files, which waits for storage that refuses"


def test_every_exception_is_needed() -> None:
    for name in ELSEWHERE:
        path = ROOT / name
        files = [path] if path.is_file() else sorted(Path(path).rglob("*.py"))
        assert any(list(writes(ast.parse(file.read_text()))) for file in files), name


def test_the_ways_are_found() -> None:
    files = [ROOT / "aiperf/files.py", *(ROOT / "aiperf/storage").glob("*.py")]
    assert sum(len(list(writes(ast.parse(file.read_text())))) for file in files) >= 5
