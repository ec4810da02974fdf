"""Programs whose text is read."""

import asyncio
import gc
import os
import sys
from pathlib import Path

import pytest

from aiperf import answers
from aiperf.answers import ask, ask_and_wait

LONG_S = 60.0
"""More than any program here needs, on any machine."""


def test_an_answer_is_in_the_c_locale_and_of_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("PMIX_RANK", "0")
    answer = ask_and_wait(["sh", "-c", 'echo "$LC_ALL ${PMIX_RANK-none}"; cat'], LONG_S, given=b"given")
    assert (answer.code, answer.output, answer.fine) == (0, "C none\ngiven", True)
    assert ask_and_wait(["sh", "-c", "echo $HERE"], LONG_S, {**os.environ, "HERE": "there"}).output == "there\n"


def test_a_reason_has_all_lines_of_what_the_program_said() -> None:
    failed = ask_and_wait(["sh", "-c", "echo out; echo one >&2; echo; echo two >&2; exit 3"], LONG_S)
    assert (failed.code, failed.reason) == (3, "one; two")
    assert ask_and_wait(["sh", "-c", "echo out; exit 3"], LONG_S).reason == "out"
    assert ask_and_wait(["sh", "-c", "exit 3"], LONG_S).reason == "exit code 3"
    long = ask_and_wait(["sh", "-c", "yes | head -c 10000 >&2; exit 1"], LONG_S)
    assert len(long.reason) == answers.MOST_CHARACTERS + 4


def test_a_program_that_is_not_there_gives_no_answer(tmp_path: Path) -> None:
    missing = ask_and_wait(["no-such-program"], LONG_S)
    assert (missing.code, missing.missing, missing.started) == (None, True, False)
    assert missing.reason == "no-such-program cannot be started: No such file or directory"
    (tmp_path / "text").write_text("")
    refused = ask_and_wait([str(tmp_path / "text")], LONG_S)
    assert (refused.missing, refused.started) == (False, False)
    assert "Permission denied" in refused.reason


def test_a_program_without_an_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    os.mkfifo(held := tmp_path / "held")
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    answer = ask_and_wait(["sh", "-c", f"sleep 60 > {held} & wait"], 0.5)
    gc.collect()  # which warns of pipes that were left open
    assert answer.reason == "sh has given no answer within 0.5 s"
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # nobody has its other end any more
    os.close(reader)


def test_a_flood_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_BYTES", 2**20)
    assert ask_and_wait(["yes"], LONG_S).reason == "yes has printed more than 1 MiB"
    gc.collect()  # which warns of pipes that were left open
    # Neither a large input nor a large answer blocks the other.
    answer = ask_and_wait(["cat"], LONG_S, given=b"x" * 2**20)
    assert len(answer.output) == 2**20


def test_an_event_loop_asks_without_being_held_up_or_asks_and_waits() -> None:
    async def both() -> tuple[str, str]:
        one = await ask([sys.executable, "-c", "print(1)"], LONG_S)
        return one.output, ask_and_wait(["echo", "2"], LONG_S).output

    assert asyncio.run(both()) == ("1\n", "2\n")
