import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.errors import ArchitectureError
from aiperf.network.json_files import from_json, read_architecture, to_json
from search_space.resnet import resnet


def document() -> dict[str, Any]:
    return dict(json.loads(to_json(resnet(50, 32, 10))))


def test_round_trip() -> None:
    for original in (resnet(50, 32, 10), resnet(152, 224, 1000)):
        assert from_json(to_json(original)) == original


def change(place: int, key: str, value: object) -> dict[str, Any]:
    result = document()
    result["nodes"][place][key] = value
    return result


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ([], "is not an architecture file"),
        ({**document(), "schema": "other"}, "is not an architecture file"),
        ({**document(), "version": 2}, "version is 2; this program reads version 1"),
        ({**document(), "extra": 1}, "unknown key.*extra"),
        ({**document(), "nodes": {}}, "nodes must be a list"),
        ({**document(), "nodes": []}, "nodes is empty"),
        ({**document(), "nodes": [3]}, r"nodes\[0\]: must be an object"),
        (change(1, "kind", "conf"), r"nodes\[1\] \(conv1\): kind is 'conf'; known: .*conv"),
        (change(1, "kernel", [3]), r"nodes\[1\] \(conv1\): kernel"),
        (change(1, "filters", "64"), r"nodes\[1\] \(conv1\): filters"),
        (change(1, "filters", 0), r"nodes\[1\] \(conv1\).*at least 1"),
        (change(1, "widht", 3), r"nodes\[1\] \(conv1\): widht"),
        (change(1, "inputs", "input"), r"nodes\[1\] \(conv1\): inputs must be a list"),
        (change(1, "name", ""), r"nodes\[1\]: name must be"),
        (change(4, "inputs", ["fc"]), "cyclic"),
        (change(1, "filters", 32), "does not fit|hash"),
    ],
)
def test_broken_documents_are_refused_with_the_place(broken: object, message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        from_json(json.dumps(broken), "file.json")


def test_truncated_file_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(to_json(resnet(50, 32, 10))[:5000])
    with pytest.raises(ArchitectureError, match=r"a\.json: is not JSON: .*line \d+"):
        read_architecture(path)
    with pytest.raises(ArchitectureError, match="cannot be read"):
        read_architecture(tmp_path / "missing.json")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArchitectureError, match="is not text"):
        read_architecture(path)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_gives_an_architecture_error(text: str) -> None:
    with pytest.raises(ArchitectureError):
        from_json(text)
