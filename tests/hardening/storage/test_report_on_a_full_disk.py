"""The result is printed whatever the disk does."""

import errno
from pathlib import Path

import pytest

from aiperf.__main__ import main
from aiperf.errors import EXIT_ENVIRONMENT
from analysis.output import artifacts
from analysis.verbs import report as verbs
from tests.support.hand_made import HandMadeRun


def test_the_result_is_printed_if_the_report_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    HandMadeRun(tmp_path).at(0).release(100).at(100).end(100)

    def refuse(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(artifacts, "write_atomically", refuse)
    assert verbs.PATIENCE_S > 0
    assert main(["report", str(tmp_path)]) == EXIT_ENVIRONMENT
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].startswith("AIPerf: score=")
    assert "No space left on device" in shown.err
