"""Common parts of all sections of a configuration."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from aiperf.config.duration import LONGEST_S, parse_duration, parse_pause
from aiperf.config.texts import MOST_ENTRIES

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]

Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(float),
    Field(le=LONGEST_S, json_schema_extra={"format": "duration"}),
]
"""Seconds; written as a number or as 90s, 5m, 1h30m."""

Pause = Annotated[
    float,
    BeforeValidator(parse_pause),
    PlainSerializer(float),
    Field(le=LONGEST_S, json_schema_extra={"format": "duration"}),
]
"""A duration, or 0."""

MOST = 1_000_000
"""Upper limit for every count: a larger number is a slip."""


def _tuple_of_list(value: object) -> object:
    if isinstance(value, list) and len(value) > MOST_ENTRIES:
        raise ValueError(f"a list of {len(value)} entries; allowed are at most {MOST_ENTRIES}")
    return tuple(value) if isinstance(value, list) else value


Listed = BeforeValidator(_tuple_of_list)
"""Validator for fields that are lists in TOML and tuples here."""


class Section(BaseModel):
    """Base of all sections: strict types, no unknown keys, docstrings as descriptions."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
