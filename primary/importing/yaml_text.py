"""YAML of plain values, read within limits.

Its aliases can make a small file stand for a huge document: what they stand for is counted before
anything is built.
"""

from collections.abc import Iterable
from typing import Any

import yaml

MOST_BYTES = 64 * 1024
MOST_NODES = 10_000
"""Upper limit for the values of a document, those that aliases repeat included."""
MOST_DEPTH = 32
MOST_DIGITS = 40
"""Upper limit for the digits of a number: YAML has base-60 numbers, and Python's have no limit."""


class PlainLoader(yaml.SafeLoader):
    """Values that JSON has: dates and bytes are texts, sets are mappings."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._merged: set[yaml.MappingNode] = set()

    def number(self, node: yaml.ScalarNode) -> int:
        """A whole number of 64 bits."""
        if len(node.value) > MOST_DIGITS:
            raise ValueError(f"line {node.start_mark.line + 1}: a number of {len(node.value)} characters")
        found: int = self.construct_yaml_int(node)
        if not -(2**63) <= found < 2**63:
            raise ValueError(f"line {node.start_mark.line + 1}: a number of more than 64 bits")
        return found

    def text(self, node: yaml.ScalarNode) -> str:
        """A text."""
        return str(self.construct_scalar(node))

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put the keys of merged mappings in front, after which keys may come twice.

        Raises ValueError for a key that comes twice before.
        """
        if node not in self._merged:
            self._merged.add(node)
            self._check_keys(node)
        super().flatten_mapping(node)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[Any] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            value = self.construct_object(key)  # `yes` and `true` are one key, as are 1 and 0x1
            if value in seen:
                raise ValueError(
                    f"line {key.start_mark.line + 1}: the key {key.value[:100]!r} comes twice; name it once"
                )
            seen.add(value)

    def mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        """A mapping."""
        return self.construct_mapping(node, deep=True)


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.number)
PlainLoader.add_constructor("tag:yaml.org,2002:timestamp", PlainLoader.text)
PlainLoader.add_constructor("tag:yaml.org,2002:binary", PlainLoader.text)
PlainLoader.add_constructor("tag:yaml.org,2002:set", PlainLoader.mapping)


def parse_yaml(text: str) -> Any:
    """The document of a text. Raises ValueError or yaml.YAMLError."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"it is longer than {MOST_BYTES} characters")
    check_size(yaml.parse(text, Loader=PlainLoader))
    loader = PlainLoader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def check_size(events: Iterable[yaml.Event]) -> None:
    """Raise ValueError if a document is nested too deep, or too large with its aliases."""
    sizes: dict[str | None, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in events:
        match event:
            case yaml.CollectionStartEvent():
                open_nodes.append((event.anchor, total))
                total += 1
            case yaml.CollectionEndEvent():
                anchor, before = open_nodes.pop()
                # Nodes without an anchor share the key None, which no alias names.
                sizes[anchor] = total - before
            case yaml.ScalarEvent():
                total += 1
                sizes[event.anchor] = 1
            case yaml.AliasEvent():
                # None of an alias within itself.
                total += sizes.get(event.anchor, MOST_NODES)
        if len(open_nodes) > MOST_DEPTH or total > MOST_NODES:
            raise ValueError(f"it is nested deeper than {MOST_DEPTH}, or has more than {MOST_NODES} values")
