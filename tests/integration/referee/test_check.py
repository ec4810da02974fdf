"""The verb `check`: verdict, exit code and JSON of good, forged and bare results."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aiperf.__main__ import main
from aiperf.errors import EXIT_DONE, EXIT_ENVIRONMENT, EXIT_FAILED
from aiperf.run_directory.checksums import without_seal
from aiperf.run_directory.paths import RunPaths
from tests.support.forging import of_trial, rewrite
from tests.support.runs import unpacked


def checked(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    code = main(["check", *map(str, words), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_run_and_its_archive_are_replayed(run: RunPaths, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["export", str(run.root), "--file", str(tmp_path / "run.tar.gz")]) == EXIT_DONE
    capsys.readouterr()
    for origin in (run.root, tmp_path / "run.tar.gz"):
        code, found = checked(capsys, origin, "--replay", 2)
        assert (code, found["verdict"], found["replayed"]) == (EXIT_DONE, "simulated", {"checked": 2, "equal": 2})
        assert (found["differences"], found["damages"], found["official"]) == ([], [], False)
    assert checked(capsys, run.root, "--replay", 0)[1]["replayed"] == {"checked": 0, "equal": 0}


def test_a_forged_run_is_invalid_and_each_difference_is_shown(
    run: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(run, of_trial(3, hyperparameters={"batch_size": 128}))
    code, found = checked(capsys, run.root, "--replay", "all")
    assert (code, found["verdict"], found["score_ops"]) == (EXIT_FAILED, "invalid", None)
    assert found["replayed"]["equal"] < found["replayed"]["checked"]
    assert any(text.startswith('trial 3: hyperparameters is {"batch_size": 128}') for text in found["differences"])
    assert main(["check", str(run.root), "--replay", "all"]) == EXIT_FAILED
    shown = capsys.readouterr().out
    assert "Not as replayed" in shown
    assert "verdict: invalid" in shown
    assert "status=" in shown.splitlines()[-1]


def test_a_bare_report_is_unverified(run: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(run.root)])
    capsys.readouterr()
    code, found = checked(capsys, run.report_json)
    assert (code, found["verdict"], found["recomputed"], found["official"]) == (EXIT_FAILED, "unverified", False, False)
    assert main(["check", str(run.report_json)]) == EXIT_FAILED
    assert "verdict: unverified" in capsys.readouterr().out


def test_a_run_without_a_chain_says_that_nothing_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", str(unpacked(tmp_path).root)])
    assert "replayed: none" in capsys.readouterr().out


def test_other_software_is_named(run: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = without_seal(json.loads(run.system.read_text()))
    run.system.write_text(json.dumps({replica: {**node, "scipy": "0.1"} for replica, node in nodes.items()}))
    main(["check", str(run.root), "--replay", "1"])
    assert "plans are equal only with the same software: scipy 0.1 on replicas 0, 1" in capsys.readouterr().out


def test_without_the_libraries_of_the_search_the_check_does_not_pass(
    run: RunPaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "referee.replay", raising=False)
    monkeypatch.delattr("referee.replay", raising=False)
    monkeypatch.setitem(sys.modules, "replica.search.choices", None)
    assert main(["check", str(run.root)]) == EXIT_ENVIRONMENT
    assert "the search cannot be loaded" in capsys.readouterr().err
    assert main(["check", str(run.root), "--replay", "0"]) == EXIT_DONE


def test_a_fresh_process_with_another_order_of_sets_and_more_threads_proposes_the_same(run: RunPaths) -> None:
    # The plans of the run were made by planners that had made others before.
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}
    program = [sys.executable, "-m", "aiperf", "check", str(run.root), "--replay", "all", "--format", "json"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    replayed = json.loads(done.stdout)["replayed"]
    assert replayed["equal"] == replayed["checked"] >= 12


@pytest.mark.parametrize("value", ["-1", "some"])
def test_a_wrong_number_of_plans_is_refused(run: RunPaths, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", str(run.root), "--replay", value])
    assert "is not a whole number of at least 0" in capsys.readouterr().err
