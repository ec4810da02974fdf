"""Heads of the primary's file: at the release, every 0.1 hour, and at the end."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.errors import ConfigError
from aiperf.records.chain import hash_of
from primary.background import heads as heads_module
from primary.background.heads import EXPLANATION, HeadLines, Referee
from tests.support.hand_made import HandMadeRun, free_port


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may be slow to give the last line."""
    monkeypatch.setattr(heads_module, "LAST_S", 300.0)
    monkeypatch.setattr(heads_module, "ANSWER_S", 300.0)


def test_the_head_is_announced_on_the_grid_and_at_the_end(tmp_path: Path) -> None:
    run, shown = HandMadeRun(tmp_path / "run"), list[str]()
    heads = HeadLines(run.primary, shown.append, str(tmp_path / "heads.txt"))
    run.at(0).release(7200)

    def line(moment: str) -> str:
        lines = run.paths.history_file("primary-1").read_bytes().splitlines()
        return f"head {moment}: primary-1 record {len(lines) - 1} sha256 {hash_of(lines[-1])}"

    expected = [EXPLANATION]
    for elapsed_s, moment in ((0.01, "0.0 h"), (359.9, ""), (360.4, "0.1 h"), (361, ""), (3600, "1.0 h")):
        run.lose(0)
        heads.look(elapsed_s)
        expected += [line(moment)] if moment else []
    run.end(7200)
    heads.last()
    assert shown == [*expected, line("end")]
    assert (tmp_path / "heads.txt").read_text().splitlines() == shown[1:]


def test_a_resumed_run_begins_at_its_place_on_the_grid(tmp_path: Path) -> None:
    run, shown = HandMadeRun(tmp_path).release(7200), list[str]()
    heads = HeadLines(run.primary, shown.append, None)
    for elapsed_s in (1300, 1301, 1440):
        heads.look(elapsed_s)
    assert [text.split(":")[0] for text in shown[1:]] == ["head 0.3 h", "head 0.4 h"]


def test_a_run_without_records_has_no_head(tmp_path: Path) -> None:
    shown = list[str]()
    HeadLines(HandMadeRun(tmp_path).primary, shown.append, None).last()
    assert shown == []


def test_a_file_that_cannot_be_written_costs_a_warning(tmp_path: Path) -> None:
    run, shown = HandMadeRun(tmp_path / "run").release(7200), list[str]()
    (tmp_path / "file").write_text("")
    heads = HeadLines(run.primary, shown.append, str(tmp_path / "file" / "heads.txt"))
    heads.look(0)
    heads.last()
    warnings = [line for line in shown if line.startswith("WARNING: the referee may lack heads of this run: ")]
    assert len(warnings) == 2
    assert "NotADirectoryError" in warnings[0] or "FileExistsError" in warnings[0]


class _Receiver(BaseHTTPRequestHandler):
    """Refuses the first text that comes, and takes all others."""

    taken: list[str]
    refused: threading.Event

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        refuse = not self.refused.is_set()
        self.refused.set()
        if not refuse:
            self.taken.append(text)  # before the answer, after which the test looks
        self.send_response(503 if refuse else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """No lines on standard error."""


@pytest.fixture
def receiver() -> Iterator[tuple[str, type[_Receiver]]]:
    handler = type("Handler", (_Receiver,), {"taken": [], "refused": threading.Event()})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/heads", handler
        server.shutdown()
        thread.join()


def test_a_url_gets_each_line_and_those_that_it_refused_again(
    receiver: tuple[str, type[_Receiver]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    url, handler = receiver
    referee = Referee(url)
    referee.give("head 0.0 h")
    assert handler.refused.wait(60)
    referee.give("head 0.1 h")
    referee.close()
    assert handler.taken == ["head 0.0 h\nhead 0.1 h\n"]
    (problem,) = referee.problems()
    assert "503" in problem


def test_other_schemes_are_refused() -> None:
    for target in ("https://referee.example/heads", "/shared/heads.txt"):
        assert load_config(overrides={"run.dataset": "digits", "run.heads": target}).run.heads == target
    with pytest.raises(ConfigError, match=r"run\.heads"):
        load_config(overrides={"run.dataset": "digits", "run.heads": "ftp://referee.example/heads"})
