"""Problems of settings in words: the key, what was found, what is allowed, and what to type.

What is allowed is read from the type of the setting, so that one sentence serves whatever is wrong
with a value. The validator's own words never reach a user.
"""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from aiperf.config.duration import exact_duration

FOUND_CHARACTERS = 80

_KINDS: dict[Any, tuple[str, str]] = {
    bool: ("true or false", "true"),
    int: ("a whole number", "1"),
    float: ("a number", "1"),
    str: ("a text", "TEXT"),
    tuple[str, ...]: ("a list of texts", '["TEXT"]'),
    tuple[int, ...]: ("a list of whole numbers", "[1]"),
}
"""What a type allows, and a value that it does."""

_LIMITS: dict[Any, str] = {Ge: "ge", Gt: "gt", Le: "le", Lt: "lt", MinLen: "min_length", MaxLen: "max_length"}


def describe_problems(error: ValidationError, model: type[BaseModel], below: tuple[str, ...] = ()) -> list[str]:
    """Everything that is wrong with a document of sections, a sentence for each.

    `below` is the place of that document in the one that was validated.
    """
    depth = len(below)
    found = [item for item in error.errors(include_url=False) if item["loc"][:depth] == below != item["loc"]]
    return [_describe({**item, "loc": item["loc"][depth:]}, model) for item in found]


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """Every setting by its dotted key."""
    for name, section in model.model_fields.items():
        yield from (f"{name}.{key}" for key in _section_model(section).model_fields)


def find_setting(model: type[BaseModel], key: str) -> FieldInfo | None:
    """The setting of a dotted key; None if there is none."""
    section, _, name = key.partition(".")
    if section not in model.model_fields:
        return None
    return _section_model(model.model_fields[section]).model_fields.get(name)


def is_duration(field: FieldInfo) -> bool:
    """True if a setting is a span of time."""
    return isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("format") == "duration"


def similar_keys(model: type[BaseModel], key: str) -> list[str]:
    """The key that was probably meant: that name in another section, or a similar key; or none."""
    name = key.rpartition(".")[2]
    same = [known for known in keys_of(model) if known.endswith(f".{name}")]
    return same[:1] or difflib.get_close_matches(key, keys_of(model), n=1, cutoff=0.75)


def allowed_values(field: FieldInfo) -> str:
    """What a setting allows, in words: "a whole number from 1 to 100000"."""
    kind = _plain(field.annotation)
    if get_origin(kind) is Literal:
        return _one_of(get_args(kind))
    limits = _limits(field)
    if is_duration(field):
        return f"a duration such as 90s, 5m, 1h30m or 12h{limits and f', {limits}'}"
    return f"{_KINDS[kind][0]} {limits}".strip()


def _describe(item: Mapping[str, Any], model: type[BaseModel]) -> str:
    section, *rest = map(str, item["loc"])
    if item["type"] == "extra_forbidden":
        return _unknown_key(section, rest[:1], model)
    field = find_setting(model, f"{section}.{rest[0]}") if rest else None
    if field is None:
        return f"{section}: found {_shown(item['input'])}; {_section_advice(section, model)}"
    key = f"{section}.{rest[0]}"
    if item["type"] == "value_error":
        return f"{key}: {item['ctx']['error']}"
    entry = f" as entry {int(rest[1]) + 1}" if len(rest) > 1 and rest[1].isdigit() else ""
    return (
        f"{key}: found {_shown(item['input'])}{entry}; allowed is {allowed_values(field)}; "
        f"for example --set {key}={_example(field, item['input'])}"
    )


def _unknown_key(section: str, rest: list[str], model: type[BaseModel]) -> str:
    if not rest:
        valid, key, close = list(model.model_fields), section, []
    else:
        valid = list(_section_model(model.model_fields[section]).model_fields)
        key, close = f"{section}.{rest[0]}", similar_keys(model, f"{section}.{rest[0]}")
    near = difflib.get_close_matches((rest or [section])[0], valid, n=1) or close
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{key}: unknown key{hint}; valid here: {', '.join(valid)}"


def _section_advice(section: str, model: type[BaseModel]) -> str:
    key = next(iter(_section_model(model.model_fields[section]).model_fields))
    return f"a section of settings is needed: [{section}] in the file, or --set {section}.{key}=VALUE"


def _section_model(field: FieldInfo) -> type[BaseModel]:
    assert isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    return field.annotation


def _plain(annotation: Any) -> Any:
    """The type without its validators, and without None, which no file can hold."""
    if get_origin(annotation) in (Union, types.UnionType):
        return _plain(next(part for part in get_args(annotation) if part is not types.NoneType))
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _limits(field: FieldInfo) -> str:
    found = {kind: getattr(item, name) for item in field.metadata for kind, name in _LIMITS.items()
             if isinstance(item, kind)}  # fmt: skip
    write = exact_duration if is_duration(field) else "{:g}".format if _plain(field.annotation) is float else str
    shown = {kind: write(value) for kind, value in found.items()}
    if MaxLen in shown:
        return f"of {shown.get(MinLen, '0')} to {shown[MaxLen]} characters"
    if Ge in shown and Le in shown:
        return f"from {shown[Ge]} to {shown[Le]}"
    words = {Ge: "at least", Gt: "above", Le: "at most", Lt: "below"}
    return " and ".join(f"{words[kind]} {shown[kind]}" for kind in words if kind in shown)


def _example(field: FieldInfo, found: object) -> str:
    kind = _plain(field.annotation)
    if get_origin(kind) is Literal:
        near = difflib.get_close_matches(str(found), [str(choice) for choice in get_args(kind)], n=1)
        return near[0] if near else str(field.default if field.default is not None else get_args(kind)[0])
    if field.default is None or field.default == ():
        return _KINDS[kind][1]
    if is_duration(field):
        return str(exact_duration(field.default))
    return str(field.default) if isinstance(field.default, str) else json.dumps(field.default)


def _one_of(choices: tuple[Any, ...]) -> str:
    *others, last = map(str, choices)
    return f"{', '.join(others)} or {last}" if others else last


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= FOUND_CHARACTERS else f"{text[:FOUND_CHARACTERS]}..."
