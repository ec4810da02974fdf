"""Verbs with odd paths: a short message each, and never a traceback."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.untrusted.text import MESSAGE_BYTES
from tests.hardening.hostile import answer, harmless

VERBS: dict[str, tuple[str, ...]] = {
    "report": ("report", "PATH"),
    "report to": ("report", "nothing", "--output", "PATH"),
    "status": ("status", "PATH"),
    "check": ("check", "PATH"),
    "compare": ("compare", "PATH", "PATH"),
    "accept": ("accept", "PATH", "--baseline", "PATH"),
    "accept by limits": ("accept", "PATH", "--baseline", "PATH.toml"),
    "rank": ("rank", "PATH", "PATH"),
    "trend": ("trend", "PATH"),
    "trend of a store": ("trend", "--store", "PATH"),
    "store add": ("store", "add", "PATH"),
    "store add into": ("store", "add", "nothing", "--store", "PATH"),
    "store list": ("store", "list", "--store", "PATH"),
    "verify": ("verify", "PATH"),
    "export": ("export", "PATH"),
    "resume": ("resume", "PATH"),
    "audit": ("audit", "PATH", "--nonce", "x"),
    "list build": ("list", "build", "PATH", "--output", "site"),
    "list build into": ("list", "build", "folder", "--output", "PATH"),
    "config show": ("config", "show", "PATH"),
    "config show of a preset": ("config", "show", "--preset", "PATH"),
    "config show with a space": ("config", "show", "--set", "search.space='''PATH'''"),
    "config import": ("config", "import", "PATH"),
    "config import of a space": ("config", "import", "nothing", "--space", "PATH"),
    "slurm configure": ("slurm", "configure", "PATH", "--output", "etc", "--controller", "n1"),
    "slurm script": ("slurm", "script", "PATH", "--output", "runs/x"),
    "run": ("run", "PATH", "--output", "/dev/null/x"),
    "no verb": ("PATH",),
}

PATHS = (
    ".", "..", "/", "//", "/dev/null", "/dev/full", "nothing", "empty", "folder", "binary", "no-utf8-\udcff", "a\nb",
    "\x1b[2J", "[bold]", "a\0b", "a" * 300, "a/" * 3000, "loop", "dangling", "empty/x", "~", "~nobody/x", "%s", "{}",
    "=1+1", "a b", "'", '"', "\u202e", "deep.json", "long.json", "list.json", "wide.tar.gz", "😀",
)  # fmt: skip


WALKING = ("list build",)
"""Verbs that look for files in all folders below the path."""

EMPTY = ("/dev/null", "/dev/full", "empty", "wide.tar.gz", "no-utf8-\udcff")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "no-utf8-\udcff", "wide.tar.gz"):
        Path(name).touch()
    Path("folder").mkdir()
    Path("binary").write_bytes(bytes(range(256)))
    Path("deep.json").write_text("[" * 100_000)
    Path("long.json").write_text("9" * 9000)
    Path("list.json").write_text("[1]")
    Path("loop").symlink_to("loop")
    Path("dangling").symlink_to("gone")
    yield


@pytest.mark.parametrize("verb", VERBS)
def test_an_odd_path_is_a_message(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    for path in PATHS:
        if verb in WALKING and path in ("/", "//"):
            continue  # it would read the names of a whole machine
        said = answer(capsys, *(word.replace("PATH", path) for word in VERBS[verb]))
        if said.code == 0 and path in EMPTY:
            continue  # no setting at all is a configuration
        assert said.code in (1, 2, 3), (path, said)
        assert said.message, path
        assert len(said.message.encode()) <= MESSAGE_BYTES + len("aiperf: "), (path, said)
        harmless(said.err)
        harmless(said.out)
