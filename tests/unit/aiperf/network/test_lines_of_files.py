"""Architecture files line by line: what is read fast is what the reader of any file reads."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aiperf.errors import ArchitectureError
from aiperf.network import json_files
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_architecture, to_json
from search_space.resnet import resnet
from tests.support.fuzz import examples

LINES = to_json(resnet(50, 32, 10)).splitlines(keepends=True)
CHANGES: list[Callable[[str], str]] = [
    lambda line: line + line,
    lambda line: "",
    lambda line: line.replace(",\n", "\n"),
    lambda line: line.replace("\n", ",\n"),
    lambda line: line.replace('": ', '" : ', 1),
    lambda line: line.replace('{"name": ', '{"name": "x", "name": ', 1),
    lambda line: line.replace('{"name": ', f'{{"name": {"[" * 200}{"]" * 200}, "name": ', 1),
    lambda line: line.replace('{"name": ', '{"x": 1, "name": ', 1),
    lambda line: line.replace("1", "1" * 13, 1),
    lambda line: line.replace("3", "5", 1),
    lambda line: line.replace("false", "true", 1),
    lambda line: line.replace('"', "'", 1),
    lambda line: line.replace("\n", "\n\n"),
    lambda line: line.replace("\n", " \n"),
    lambda line: "\ufeff" + line,
]


def outcome(path: Path) -> Architecture | str:
    try:
        return read_architecture(path)
    except ArchitectureError as error:
        return str(error)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(LINES) - 1), st.sampled_from(CHANGES)), max_size=2))
@example([])
@example([(len(LINES) - 2, CHANGES[3])])
def test_a_changed_file_is_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: list[tuple[int, Callable[[str], str]]]
) -> None:
    lines = list(LINES)
    for place, change in changes:
        lines[place] = change(lines[place])
    file = tmp_path / "architecture.json"
    file.write_text("".join(lines), encoding="utf-8")
    found = outcome(file)
    with monkeypatch.context() as patched:
        patched.setattr(json_files, "_as_written", lambda *_: None)
        assert outcome(file) == found


def test_a_file_as_it_is_written_is_read_fast() -> None:
    assert json_files._as_written("".join(LINES).encode()) == resnet(50, 32, 10)
