"""Lists of a configuration file, which are tuples here."""

from __future__ import annotations


def tuple_of_list(value: object) -> object:
    """A list as a tuple; anything else as it is, for the validation to judge."""
    return tuple(value) if isinstance(value, list) else value
