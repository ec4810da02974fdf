"""Admission to the dashboard, and its table of runs."""

from pathlib import Path

import pytest

from aiperf.errors import RunDirectoryError
from dashboard.guard import new_token, refusal
from dashboard.runs import Runs, run_id
from tests.support.hand_made import HandMadeRun

TOKEN = "a-token"
HOST = "127.0.0.1:4000"


@pytest.mark.parametrize("host", ["127.0.0.1:4000", "localhost:8080", "[::1]:4000", "localhost"])
def test_its_own_pages_are_admitted_by_the_token(host: str) -> None:
    assert refusal(TOKEN, TOKEN.encode(), host, None) is None
    assert refusal(TOKEN, TOKEN.encode(), host, f"http://{host}") is None


@pytest.mark.parametrize("given", [b"", b"a-toke", b"a-token-", b"A-TOKEN", "ä-token".encode(), b"\xff"])
def test_a_missing_or_wrong_token_is_refused(given: bytes) -> None:
    assert "token" in str(refusal(TOKEN, given, HOST, None))


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:4000",
        "127.0.0.1.evil.example",
        "localhost:4000,evil.example",
        "127.0.0.1:x",
        "x@127.0.0.1",
        "10.0.0.1:4000",
        "127.0.0.1:4000\n",
    ],
)
def test_a_foreign_host_is_refused(host: str) -> None:
    assert "127.0.0.1" in str(refusal(TOKEN, TOKEN.encode(), host, None))


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "", "https://127.0.0.1:4000", "http://127.0.0.1:4001", "http://localhost:4000"],
)
def test_a_foreign_origin_is_refused(origin: str) -> None:
    assert "origin" in str(refusal(TOKEN, TOKEN.encode(), HOST, origin))


def test_tokens_differ() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 40


def test_the_table_has_the_runs_in_and_below_a_directory(tmp_path: Path) -> None:
    runs = Runs([tmp_path])
    assert (runs.find(), runs.single) == ({}, None)
    first = HandMadeRun(tmp_path / "first").paths.root
    (tmp_path / "notes").mkdir()
    (tmp_path / "text").write_text("")
    assert list(runs.find()) == [run_id(first)], "a run that was started since"
    assert Runs([first]).single == run_id(first)
    assert [paths.root for paths in Runs([first, tmp_path]).find().values()] == [first]
    assert Runs([first, tmp_path]).single is None


def test_an_id_does_not_show_the_path(tmp_path: Path) -> None:
    assert set(run_id(tmp_path)) <= set("0123456789abcdef")
    assert run_id(tmp_path) != run_id(tmp_path / "x")


def test_a_directory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="aiperf dashboard DIR"):
        Runs([tmp_path / "none"])
