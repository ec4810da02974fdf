"""The documents of the repository, and the commands in them as a reader would type them."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from tests.support.folders import ROOT

OTHER_LANGUAGES = frozenset({"text", "json", "python", "toml", "yaml", "bibtex"})
"""Fenced blocks that hold no commands: output, files, programs."""

IN_A_SENTENCE = re.compile(r"\S*(?:aiperf|make|python\d?|pip|\.sh) ")
PUNCTUATION = re.compile(r"[();<>|&]+")


@dataclass(frozen=True, slots=True)
class Written:
    """A command of a document: a `whole` one of a block, to be typed, or one in a sentence."""

    document: str
    line: int
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {' '.join(self.words)}"


def documents() -> list[Path]:
    """Every Markdown file of the repository, or of an unpacked archive of it."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        shown = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):  # no git, no repository, or another user's
        found = [path.relative_to(ROOT) for path in ROOT.rglob("*.md")]
        shown = [str(path) for path in found if not re.match(r"\.|(build|dist|runs)$", path.parts[0])]
    return [ROOT / name for name in sorted(shown) if (ROOT / name).exists()]


def fenced_blocks(document: Path, language: str) -> list[str]:
    """The blocks of a document in a language."""
    tokens = MarkdownIt().parse(document.read_text())
    return [token.content for token in tokens if token.type == "fence" and token.info.strip() == language]


def commands_of(document: Path) -> list[Written]:
    """Every command of AIPerf, make and Python in a document."""
    return list(commands_in(document.read_text(), str(document.relative_to(ROOT))))


def commands_in(text: str, name: str) -> Iterator[Written]:
    """The commands in a text in Markdown."""
    for token in MarkdownIt().enable("table").parse(text):
        line = token.map[0] + 1 if token.map else 0
        language = token.info.strip()
        if token.type == "code_block" or (token.type == "fence" and language not in OTHER_LANGUAGES):
            for words in _typed(token.content):
                yield Written(name, line, words, whole=True)
        for child in token.children or ():
            if child.type == "code_inline" and (words := _in_a_sentence(child.content)):
                yield Written(name, line, words, whole=False)


def _in_a_sentence(code: str) -> tuple[str, ...]:
    if not IN_A_SENTENCE.match(code):
        return ()
    try:
        return _ours(tuple(shlex.split(code)))
    except ValueError:  # not a command: an apostrophe, half a quotation
        return ()


def _typed(block: str) -> Iterator[tuple[str, ...]]:
    for line in block.replace("\\\n", " ").splitlines():
        yield from _simple_commands(line)


def _simple_commands(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of a line of shell: of pipes, lists and substitutions, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        tokens = [*lexer, ";"]
    except ValueError:
        tokens = [*line.split(), ";"]
    words: list[str] = []
    for index, token in enumerate(tokens):
        for inner in re.findall(r"\$\((.*)\)", token):
            yield from _simple_commands(inner)
        if PUNCTUATION.fullmatch(token) and "<" not in token and ">" not in token:
            if command := _ours(tuple(words)):
                yield command
            words = []
        elif not PUNCTUATION.fullmatch(token) and not (index and tokens[index - 1] in (">", ">>", "<")):
            words.append(token)


def _ours(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words from `aiperf`, `make` or `python` on, or a script of the repository; else nothing.

    Other programs may stand in front of `aiperf`: a container's, a watch.
    """
    while words and (words[0] == "$" or re.fullmatch(r"\w+=.*", words[0])):
        words = words[1:]
    for index, word in enumerate(words[:-1]):
        # Not `docker build -t aiperf .`, nor the image in `docker run aiperf aiperf run`.
        follows = re.fullmatch(r"-{0,2}[a-z][a-z-]*", words[index + 1]) and words[index + 1] != "aiperf"
        if word.rpartition("/")[2] == "aiperf" and (index == 0 or follows):
            return ("aiperf", *words[index + 1 :])
        if re.fullmatch(r"python[\d.]*", word.rpartition("/")[2]) and index == 0:
            return ("python", *words[1:])
    ours = ("make", "pip")
    return words if (len(words) > 1 and words[0] in ours) or (words[:1] and _is_script(words[0])) else ()


def _is_script(word: str) -> bool:
    return re.fullmatch(r"(?:tools|examples|containers)/[\w/-]+\.(?:sh|py)", word) is not None
