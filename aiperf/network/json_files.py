"""Architectures as JSON files: one object with `schema`, `version` and the list of `nodes`.

Every node is an object with `name`, `kind`, `inputs` and the parameters of its layer; parameters
that are left out take the layer's defaults. Errors name the place: the line of broken JSON, or the
node and the key.
"""

import json
import re
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from aiperf.errors import ArchitectureError, TrialFailedError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import LAYER_TYPES, Layer
from aiperf.untrusted.reading import SMALL, parse_outside, read_bounded, reason_of, shortened

SCHEMA = "aiperf-architecture"
VERSION = 1

MOST_DIGITS = 12
"""Upper limit for the digits of a size: a product of several sizes is still a finite float."""

_TOO_LONG = re.compile(rf"\d{{{MOST_DIGITS + 1}}}")

MOST_MESSAGE = 1000
"""Characters of a problem, which may repeat a name from the file."""

_ADAPTERS: dict[str, TypeAdapter[Layer]] = {kind: TypeAdapter(layer) for kind, layer in LAYER_TYPES.items()}


def to_json(architecture: Architecture) -> str:
    """The architecture as JSON text, one node a line."""
    nodes = [node.line or _line_of_node(node) for node in architecture.nodes]
    heads = f'"heads": {json.dumps(list(architecture.heads))}, ' if architecture.heads else ""
    head = f'{{"schema": "{SCHEMA}", "version": {VERSION}, "hash": "{architecture.hash}", {heads}"nodes": [\n'
    return head + ",\n".join(nodes) + "\n]}\n"


def _line_of_node(node: Node) -> str:
    line = _line_of_equal(node)
    if _TOO_LONG.search(line) is None:  # a reader refuses such a number: the line is not one to be known by
        object.__setattr__(node, "line", line)
    return line


@lru_cache(maxsize=65536)
def _line_of_equal(node: Node) -> str:
    """A node as JSON. Architectures of one run share most of them."""
    shares = {"shares": node.shares} if node.shares else {}
    head = {"name": node.name, "kind": node.layer.kind, "inputs": list(node.inputs)}
    return json.dumps({**head, **shares, **asdict(node.layer)})


def from_json(text: str, source: str = "architecture") -> Architecture:
    """Read an architecture from JSON text; `source` names it in errors.

    Raises ArchitectureError with the place of the first problem, also if a recorded hash does not
    fit.
    """
    try:
        return _from_json(text, source)
    except (ArchitectureError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ArchitectureError(shortened(str(error) or type(error).__name__, MOST_MESSAGE)) from None


def _from_json(text: str, source: str) -> Architecture:
    document = _document(text, source)
    nodes = tuple(_node(item, f"{source}: nodes[{index}]") for index, item in enumerate(document["nodes"]))
    if not nodes:
        raise ArchitectureError(f"{source}: nodes is empty")
    heads = document.get("heads", [])
    if not isinstance(heads, list) or not all(isinstance(name, str) for name in heads):
        raise ArchitectureError(f"{source}: heads must be a list of node names")
    try:
        architecture = Architecture(nodes, tuple(heads))
    except ArchitectureError as error:
        raise ArchitectureError(f"{source}: {error}") from None
    recorded = document.get("hash", architecture.hash)
    if recorded != architecture.hash:
        raise ArchitectureError(
            f"{source}: hash is {recorded!r}, but the nodes hash to {architecture.hash!r}: the file is damaged"
        )
    return architecture


def read_architecture(path: Path, expected: Architecture | None = None) -> Architecture:
    """Read an architecture file. Raises ArchitectureError naming file and place.

    If it holds the `expected` architecture, as it would be written, that is returned: it is checked
    and hashed already.
    """
    data = read_bounded(path, SMALL.size, ArchitectureError)
    if expected is not None and data == to_json(expected).encode() and all(node.line for node in expected.nodes):
        return expected
    found = _as_written(data)
    if found is not None:
        return found
    text = parse_outside(data, str(path), bytes.decode, error=ArchitectureError, what="text")
    return from_json(text, str(path))


_HEAD = re.compile(rf'{{"schema": "{SCHEMA}", "version": {VERSION}, "hash": "([0-9a-f]+)", "nodes": \['.encode())


def _as_written(data: bytes) -> Architecture | None:
    """The architecture of a file that is as `to_json` writes it, a node a line; None of any other.

    Architectures of one run share most of their lines.
    """
    head, *lines, end, rest = data.split(b"\n") if data.count(b"\n") > 2 else (b"", b"", b"")
    found = _HEAD.fullmatch(head)
    if found is None or (end, rest) != (b"]}", b""):
        return None
    try:
        # With a comma as all others have it: equal nodes share one entry of the cache.
        architecture = Architecture((*map(_node_of_line, lines[:-1]), _node_of_line(lines[-1] + b",")))
    except (ArchitectureError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        return None  # for the reader of any file, which names the place
    return architecture if architecture.hash == found[1].decode() else None


@lru_cache(maxsize=65536)
def _node_of_line(line: bytes) -> Node:
    """The node of a line with a comma at its end. Raises ValueError and other errors."""
    if not line.endswith(b",") or line.count(b"{") + line.count(b"[") > SMALL.depth:
        raise ValueError("is not a line of an architecture")
    return _node(json.loads(line[:-1].decode(), parse_int=_whole_number), "")


def read_requested(path: Path, wanted_hash: str | None) -> Architecture:
    """Read the architecture of that hash (None: any) to train it.

    Raises ArchitectureError, and TrialFailedError ("build") if the file holds another one: what is
    trained must be what is recorded and counted.
    """
    architecture = read_architecture(path)
    if wanted_hash not in (None, architecture.hash):
        raise TrialFailedError("build", f"{path} holds the architecture {architecture.hash}, not {wanted_hash}")
    return architecture


def _document(text: str, source: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        raise ArchitectureError(f"{source}: is not JSON: {reason_of(error)}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ArchitectureError(f'{source}: is not an architecture file: needs an object with "schema": "{SCHEMA}"')
    if document.get("version") != VERSION:
        raise ArchitectureError(
            f"{source}: version is {document.get('version')!r}; this program reads version {VERSION}"
        )
    unknown = document.keys() - {"schema", "version", "hash", "heads", "nodes"}
    if unknown:
        raise ArchitectureError(f"{source}: unknown key(s): {', '.join(sorted(unknown))}")
    if not isinstance(document.get("nodes"), list):
        raise ArchitectureError(f"{source}: nodes must be a list")
    return document


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits; at most {MOST_DIGITS} are read")
    return int(digits)


@lru_cache(maxsize=4096)
def _layer(kind: str, text: str) -> Layer:
    """A layer from its parameters as JSON. Architectures of one run share most of theirs."""
    return _ADAPTERS[kind].validate_json(text, strict=True)


def _node(item: object, place: str) -> Node:
    if not isinstance(item, dict):
        raise ArchitectureError(f"{place}: must be an object, found {type(item).__name__}")
    parameters = dict(item)
    name, kind, inputs, shares = (
        parameters.pop("name", None),
        parameters.pop("kind", None),
        parameters.pop("inputs", []),
        parameters.pop("shares", ""),
    )
    if not isinstance(name, str) or not name:
        raise ArchitectureError(f"{place}: name must be a non-empty string, found {name!r}")
    place = f"{place} ({name})"
    if not isinstance(kind, str) or kind not in _ADAPTERS:
        raise ArchitectureError(f"{place}: kind is {kind!r}; known: {', '.join(sorted(_ADAPTERS))}")
    if not isinstance(inputs, list) or not all(isinstance(entry, str) for entry in inputs):
        raise ArchitectureError(f"{place}: inputs must be a list of node names, found {inputs!r}")
    if not isinstance(shares, str):
        raise ArchitectureError(f"{place}: shares must be the name of a node, found {shares!r}")
    try:
        layer = _layer(kind, json.dumps(parameters))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "layer"
        raise ArchitectureError(f"{place}: {key}: {first['msg']}") from None
    return Node(name, layer, tuple(inputs), shares)
