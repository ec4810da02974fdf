"""Input from outside: accepted, or an error with a message; never a traceback or a hang."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.config.dataset_manifest import MANIFEST_NAME, read_dataset_manifest
from aiperf.config.settings import load_config
from aiperf.errors import AiperfError
from aiperf.network.json_files import from_json, to_json
from aiperf.records.record import decode_record
from aiperf.wire.lines import (
    decode_begin,
    decode_from_trainer,
    decode_to_agent,
    decode_to_primary,
    decode_train_request,
)
from search_space.resnet import resnet
from slurm.hostlists import expand
from slurm.states import parse_jobs
from tests.support.fuzz import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
TYPES = st.sampled_from(["ready", "job", "stop", "progress", "epoch", "train", "begin", "failed", "alive", "x"])
LINES = st.one_of(
    st.binary(max_size=200),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.tuples(TYPES, st.dictionaries(st.text(max_size=8), JSON, max_size=4)).map(
        lambda pair: json.dumps({**pair[1], "type": pair[0]}).encode()
    ),
)
DECODERS = [decode_begin, decode_from_trainer, decode_to_agent, decode_to_primary, decode_train_request, decode_record]


@pytest.mark.parametrize("decode", DECODERS)
@given(line=LINES)
def test_lines_of_any_kind(decode: Any, line: bytes) -> None:
    try:
        decode(line)
    except AiperfError as error:
        assert str(error)
        assert len(str(error)) < 3000


RESNET = to_json(resnet(50, 32, 10))


@given(data=st.data())
@settings(max_examples=examples(60))
def test_architecture_files_with_anything_changed(data: st.DataObject) -> None:
    document = json.loads(RESNET)
    nodes = document[next(key for key in document if isinstance(document[key], list))]
    node = nodes[data.draw(st.integers(0, len(nodes) - 1))]
    target = data.draw(st.sampled_from([document, node, *[v for v in node.values() if isinstance(v, dict)]]))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(JSON | st.sampled_from([10**12, -1, 0, 1e308]))
    try:
        from_json(json.dumps(document))
    except AiperfError as error:
        assert str(error)


@given(text=st.text(max_size=60) | JSON.map(json.dumps))
def test_texts_that_should_be_architectures(text: str) -> None:
    try:
        from_json(text)
    except AiperfError as error:
        assert str(error)


KEYS = [
    "run.replicas",
    "run.duration",
    "run.dataset",
    "training.precision",
    "slurm.options",
    "ssh.hosts",
    "simulated.fail_trials",
    "search.space",
    "replica.ranks",
    "environment.container",
    "x",
    "run.x",
]


@given(overrides=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_configurations_of_any_kind(overrides: dict[str, Any]) -> None:
    try:
        load_config(overrides=overrides)
    except AiperfError as error:
        assert "problem(s)" in str(error)


@given(content=st.binary(max_size=100) | st.text(max_size=60).map(str.encode))
def test_configuration_files_of_any_kind(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(content)
    try:
        load_config(file)
    except AiperfError as error:
        assert str(error)


@given(content=LINES)
def test_descriptions_of_data_sets_of_any_kind(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: Path = tmp_path_factory.getbasetemp()
    (folder / MANIFEST_NAME).write_bytes(content)
    try:
        read_dataset_manifest(folder)
    except AiperfError as error:
        assert MANIFEST_NAME in str(error)


@given(text=st.text(alphabet="abn0123456789[],-|. ", max_size=40))
def test_host_lists_and_states_of_any_kind(text: str) -> None:
    parse_jobs(text)
    try:
        expand(text)
    except AiperfError as error:
        assert "host list" in str(error)
