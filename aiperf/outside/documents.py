"""Documents that a user names, read within limits; whatever a parser raises is a message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiperf.errors import UsageError
from aiperf.outside.text import cut

PATH_CHARACTERS = 300
"""Most characters of a path in a message."""


def read_document(file: Path, parse: Callable[[str], Any], language: str, most_bytes: int) -> Any:
    """The document of a file. Raises UsageError with the file's name and the reason."""
    name = cut(str(file), PATH_CHARACTERS)
    try:
        with file.open("rb") as stream:
            content = stream.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise ValueError(f"it is larger than {most_bytes} bytes")
        return parse(content.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"{name}: is not {language}: it is nested too deep") from None
    except Exception as error:  # parsers raise what their authors did not foresee
        raise UsageError(f"{name}: is not {language}: {cut(' '.join(str(error).split()))}") from None


def read_json(file: Path, most_bytes: int) -> Any:
    """A document of JSON. Raises UsageError."""
    return read_document(file, json.loads, "JSON", most_bytes)
