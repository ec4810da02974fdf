"""Rows of text: settings, TOML, YAML and spaces, verbs with odd paths."""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from aiperf.config.settings import load_config
from tests.hardening.corpus.case import Action, Case, complaint, said, variants
from tests.hardening.hostile import CORPUS, VALUES
from tests.hardening.test_documents import SPACES, YAMLS
from tests.hardening.test_paths import PATHS, VERBS
from tests.hardening.test_settings import KEYS, STRUCTURES

TOML = b"""\
[run]
name = "first"
dataset = "digits"
replicas = 2
duration = "1h"

[ssh]
hosts = ["n1", "me@n2:22"]

[slurm]
partition = "gpu"
options = ["--comment=two words"]
"""

YAML = b"""\
experimentName: &name first
trialConcurrency: 2
maxExecDuration: 12h
searchSpace: {momentum: {_type: choice, _value: [0.9]}}
description: *name
"""

SPACE = (
    b'{"learning_rate": {"_type": "loguniform", "_value": [0.0001, 1]}, "momentum": {"_type": "choice", "_value": [0]}}'
)

MORE_PATHS = (
    "/proc/self/mem", "/proc/self/environ", "/dev/stdin/x", "/etc/shadow/x", "-", "--", "-x", "--help=1", "\t", "a\rb",
    "\u2028", "..//..//", "./.", "folder/../nothing", "folder/../folder", "file:///etc/passwd", "http://[::1", "a:b:c",
    "*", "?", "[", "{a,b}", "$HOME", "nul", "con", "x" * 4096, "\x7f", "%00", "\\\\host\\share", "run.json",
)  # fmt: skip


def settings() -> Iterator[Case]:
    """Every setting with every hostile value."""
    for key in KEYS:
        for number, value in enumerate(VALUES):
            yield Case(f"{key} = value {number}", lambda _, k=key, v=value: _configured(k, v))  # type: ignore[misc]


def _configured(key: str, value: object) -> str:
    return complaint(lambda: load_config(overrides={key: value}))


def _in_file(name: str, content: bytes, *words: str) -> Action:
    """Writes a file and calls a verb with it (FILE)."""

    def action(folder: Path) -> str:
        (folder / name).write_bytes(content)
        return said(*(word.replace("FILE", str(folder / name)) for word in words))

    return action


def toml() -> Iterator[Case]:
    """Files of settings."""
    contents = {file.name: file.read_bytes() for file in sorted((CORPUS / "toml").iterdir())}
    contents |= {name: text.encode() for name, text in STRUCTURES.items()} | dict(variants(TOML, 60))
    for name, content in contents.items():
        yield Case(name, _in_file("run.toml", content, "config", "show", "FILE"))


def yaml() -> Iterator[Case]:
    """Experiments of the earlier implementation, and spaces."""
    contents = {name: text.encode() for name, text in YAMLS.items()} | dict(variants(YAML, 90))
    for name, content in contents.items():
        yield Case(name, _in_file("config.yml", content, "config", "import", "FILE"))
    spaces = [json.dumps({str(name): {"_type": kind, "_value": values}}).encode() for name, kind, values in SPACES]
    for number, content in enumerate([*spaces, *(content for _, content in variants(SPACE, 30))]):
        action = _in_file("space.json", content, "config", "show", "--set", "search.space='FILE'")
        yield Case(f"space {number}", action)


def paths() -> Iterator[Case]:
    """Every verb that takes a path, with odd ones."""
    for verb, words in VERBS.items():
        for path in (*PATHS, *MORE_PATHS):
            yield Case(f"{verb} {path[:40]!r}", partial(_with_path, words, path))


def _with_path(words: tuple[str, ...], path: str, folder: Path) -> str:
    os.chdir(folder)
    (folder / "empty").touch()
    (folder / "folder").mkdir()
    (folder / "binary").write_bytes(bytes(range(256)))
    for name, text in {"deep.json": "[" * 100_000, "long.json": "9" * 9000, "list.json": "[1]"}.items():
        (folder / name).write_text(text)
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("gone")
    return said(*(word.replace("PATH", path) for word in words))
