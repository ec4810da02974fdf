"""The last line of a verb that was typed wrongly: the cause, and a command that helps."""

import errno
import gc
import os
import signal
from pathlib import Path

import pytest

from aiperf.__main__ import main, start
from aiperf.storage.error_texts import in_words

SEE = "see what there is: aiperf dashboard"


@pytest.mark.parametrize("verb", ["status", "report", "verify", "resume", "stop", "rank", "trend"])
@pytest.mark.parametrize(("folder", "cause"), [("none", "is not a directory"), (".", "has no run.json; ")])
def test_a_path_that_is_no_run_leads_to_those_that_are(
    verb: str,
    folder: str,
    cause: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("aiperf.cli.program.program", lambda: "aiperf")
    assert main([verb, folder]) == 2
    shown = capsys.readouterr()
    assert shown.out == "", "it is said once"
    if (verb, folder) == ("status", "none"):
        cause = "is not there; a run in a job"
    assert cause in shown.err
    assert shown.err.endswith(f"{SEE}\n")


def test_a_wrong_option_leads_to_the_help_of_its_verb_or_action(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aiperf.cli.program.program", lambda: "aiperf")
    for words, of in ((["ops", "--imagesize"], "ops"), (["dataset", "check", "x", "--none"], "dataset")):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert capsys.readouterr().err.endswith(f"; what it takes: aiperf help {of}\n")


def test_what_the_doctor_finds_failed_is_whole_below_its_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aiperf.cli.program.program", lambda: "aiperf")
    monkeypatch.setattr("aiperf.cli.console.WIDTH", 60)
    assert main(["doctor", "--config", "of/a/long/name/that/no/cell/has/room/for.toml"]) == 3
    *_, failed, verdict = capsys.readouterr().out.splitlines()
    assert failed.startswith("settings: of/a/long/name/that/no/cell/has/room/for.toml: cannot be read: No such file")
    assert "; aiperf config show" in failed
    assert verdict == "a run would fail: 1 failed, 0 warning(s)"


@pytest.mark.parametrize(
    ("number", "file", "why"),
    [
        (errno.EACCES, "a b/run.json", "; see why: namei -l 'a b/run.json'"),
        (errno.ENOSPC, "runs/a b/x", "; see why: df -h 'runs/a b'"),
        (errno.EDQUOT, b"x", "; see why: quota -s"),
        (errno.EIO, "x", ""),
    ],
)
def test_an_error_of_a_file_is_its_name_the_reason_and_what_shows_why(number: int, file: str, why: str) -> None:
    assert in_words(OSError(number, os.strerror(number), file)) == f"{os.fsdecode(file)}: {os.strerror(number)}{why}"


def test_an_error_without_a_file_is_its_text() -> None:
    assert in_words(OSError("torn")) == "torn"
    assert in_words(OSError(errno.EIO, "refused", 5)) == "[Errno 5] refused: 5"


def test_the_end_looks_for_no_garbage_in_what_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    for name, made in (("foreign", list), ("copied", list), ("main", int)):
        monkeypatch.setattr(f"aiperf.__main__.{name}", made)
    try:
        assert (start(), gc.get_freeze_count() > 0) == (0, True)
    finally:
        gc.unfreeze()
        signal.signal(signal.SIGINT, before)
