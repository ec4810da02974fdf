"""Problems of settings in words: the key, what was found, what is allowed, and what to type.

What is allowed is read from the type of the setting, so that one sentence serves whatever is wrong
with a value. The validator's own words never reach a user.
"""

import difflib
import json
import shlex
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from aiperf.config.duration import exact_duration
from aiperf.config.texts import TextRule
from aiperf.untrusted.text import VALUE_CHARACTERS, cut, shown

MOST_PROBLEMS = 100

_KINDS: dict[Any, tuple[str, str]] = {
    bool: ("true or false", "true"),
    int: ("a whole number", "1"),
    float: ("a number", "1"),
    str: ("a text", "TEXT"),
}
"""Description of the values of a type, and an example of one."""

_LIMITS: dict[Any, str] = {Ge: "ge", Gt: "gt", Le: "le", Lt: "lt", MinLen: "min_length", MaxLen: "max_length"}


def describe_problems(error: ValidationError, model: type[BaseModel], below: tuple[str, ...] = ()) -> list[str]:
    """Describe the problems of a document of sections, in one sentence for each setting.

    `below` is the place of that document in the one that was validated.
    """
    depth = len(below)
    every = error.errors(include_url=False, include_context=True)
    found: dict[tuple[int | str, ...], Mapping[str, Any]] = {}
    for item in every:
        if item["loc"][:depth] == below != item["loc"]:
            # One for each setting: each of 100,000 entries of a list may be wrong.
            found.setdefault(item["loc"][: depth + 2], item)
    shortened = [_describe({**item, "loc": item["loc"][depth:]}, model) for item in [*found.values()][:MOST_PROBLEMS]]
    return [*shortened, *([f"and {len(found) - MOST_PROBLEMS} more problems"] if len(found) > MOST_PROBLEMS else [])]


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
    """Describe the allowed values of a setting: "a whole number from 1 to 100000"."""
    kind = _plain(field.annotation)
    if get_origin(kind) is Literal:
        return _one_of(get_args(kind))
    limits = _limits(field)
    if is_duration(field):
        return f"a duration such as 90s, 5m, 1h30m or 12h{limits and f', {limits}'}"
    if get_origin(kind) is tuple:
        entry = get_args(kind)[0]
        return f"a list of {limits and f'{limits} entries, each '}{_allowed_entry(entry)}"
    rule = _rule(field)
    return rule.allowed if rule is not None else f"{_KINDS[kind][0]} {limits}".strip()


def _allowed_entry(annotation: Any) -> str:
    """Describe the allowed entries of a list."""
    rule = next((item for item in _metadata(annotation) if isinstance(item, TextRule)), None)
    if rule is not None:
        return rule.allowed
    if get_origin(annotation) is Literal:
        return _one_of(get_args(annotation))
    return f"{_KINDS[_plain(annotation)][0]} {_in_words(_metadata(annotation), str)}".strip()


def _rule(field: FieldInfo) -> TextRule | None:
    """The rule for a text; it may be below "or None"."""
    found = [*field.metadata, *_metadata(field.annotation)]
    return next((item for item in found if isinstance(item, TextRule)), None)


def _metadata(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        for item in get_args(annotation)[1:]:
            yield from item.metadata if isinstance(item, FieldInfo) else (item,)
    elif get_origin(annotation) in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _metadata(part)


def _describe(item: Mapping[str, Any], model: type[BaseModel]) -> str:
    section, *rest = (cut(str(part), VALUE_CHARACTERS) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return _unknown_key(section, rest[:1], model)
    field = find_setting(model, f"{section}.{rest[0]}") if rest else None
    if field is None:
        return f"{section}: found {shown(item['input'])}; {_section_advice(section, model)}"
    key = f"{section}.{rest[0]}"
    if item["type"] == "value_error":
        return f"{key}: {cut(str(item['ctx']['error']))}"
    entry = f" as entry {int(rest[1]) + 1}" if len(rest) > 1 and rest[1].isdigit() else ""
    return (
        f"{key}: found {shown(item['input'])}{entry}; allowed is {allowed_values(field)}; "
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
    write = exact_duration if is_duration(field) else "{:g}".format if _plain(field.annotation) is float else str
    return _in_words(field.metadata, write)


def _in_words(metadata: Iterable[Any], write: Callable[[Any], object]) -> str:
    found: dict[Any, Any] = {}
    for item in metadata:
        for kind, name in _LIMITS.items():
            if isinstance(item, kind):
                value = getattr(item, name)
                found[kind] = min(found.get(kind, value), value) if kind in (Le, Lt, MaxLen) else value
    words = {kind: write(value) for kind, value in found.items()}
    if MaxLen in words:
        return f"at most {words[MaxLen]}"
    if Ge in words and Le in words:
        return f"from {words[Ge]} to {words[Le]}"
    names = {Ge: "at least", Gt: "above", Le: "at most", Lt: "below"}
    return " and ".join(f"{names[kind]} {words[kind]}" for kind in names if kind in words)


def _example(field: FieldInfo, found: object) -> str:
    kind = _plain(field.annotation)
    if get_origin(kind) is Literal:
        near = difflib.get_close_matches(shown(found).strip("'"), [str(choice) for choice in get_args(kind)], n=1)
        return near[0] if near else str(field.default if field.default is not None else get_args(kind)[0])
    if get_origin(kind) is tuple:
        entry = get_args(kind)[0]
        if get_origin(entry) is Literal:
            return f"'[\"{get_args(entry)[0]}\"]'"
        rule = next((item for item in _metadata(entry) if isinstance(item, TextRule)), None)
        return f"'[\"{rule.example}\"]'" if rule is not None else "'[1]'"
    if field.default is None or field.is_required():
        rule = _rule(field)
        return shlex.quote(rule.example) if rule is not None else _KINDS[kind][1]
    if is_duration(field):
        return str(exact_duration(field.default))
    return str(field.default) if isinstance(field.default, str) else json.dumps(field.default)


def _one_of(choices: tuple[Any, ...]) -> str:
    *others, last = map(str, choices)
    return f"{', '.join(others)} or {last}" if others else last
