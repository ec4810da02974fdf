"""Storage that refuses for a moment, as this process sees it."""

import os
from pathlib import Path
from typing import Any

import pytest


def refuse(monkeypatch: pytest.MonkeyPatch, *codes: int) -> None:
    """Let the next openings of files fail with these errors, one each."""
    real, left = Path.open, iter(codes)

    def opened(file: Path, *words: Any, **more: Any) -> Any:
        for code in left:
            raise OSError(code, os.strerror(code))
        return real(file, *words, **more)

    monkeypatch.setattr(Path, "open", opened)
