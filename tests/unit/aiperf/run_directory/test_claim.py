"""One primary at a time: living, dead and silent holders of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aiperf.errors import RunHeldError
from aiperf.run_directory.claim import SILENCE_S, Claim
from testing.processes import lives
from testing.runs import wait_for


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "primary.claim"


def test_a_living_holder_is_respected_and_named(path: Path) -> None:
    held = rf"process {os.getpid()} on .*, since 1970-01-01T00:00:00"
    with Claim(path, 0), pytest.raises(RunHeldError, match=held):
        Claim(path, 1)
    Claim(path, 2).release()
    assert list(path.parent.iterdir()) == []


def test_a_dead_holder_is_detected(path: Path) -> None:
    script = "import os, sys; from pathlib import Path; from aiperf.run_directory.claim import Claim; "
    script += "Claim(Path(sys.argv[1]), 0); os._exit(9)"
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert path.exists()
    Claim(path, 1).release()


def test_a_dead_holder_that_is_still_a_zombie_is_detected(path: Path) -> None:
    script = "import os, sys; from pathlib import Path; from aiperf.run_directory.claim import Claim; "
    script += "Claim(Path(sys.argv[1]), 0); os._exit(9)"
    with subprocess.Popen([sys.executable, "-c", script, str(path)]) as process:
        wait_for(lambda: not lives(process.pid))
        assert path.exists()
        Claim(path, 1).release()


def test_another_process_with_the_id_of_the_dead_one_is_not_the_holder(path: Path) -> None:
    claim = Claim(path, 0)
    holder = json.loads(path.read_bytes())
    holder["process_started"] -= 100
    path.write_text(json.dumps(holder))
    second = Claim(path, 1)
    claim.release()
    assert path.exists(), "the first one's release leaves the second one's claim"
    second.release()


def test_a_silent_holder_on_another_node_is_dead(path: Path) -> None:
    Claim(path, 0)
    holder = {**json.loads(path.read_bytes()), "host": "elsewhere"}
    path.write_text(json.dumps(holder))
    with pytest.raises(RunHeldError, match="on elsewhere"):
        Claim(path, 1)
    silent_s = time.time() - SILENCE_S - 5
    os.utime(path, (silent_s, silent_s))
    claim = Claim(path, 1)
    os.utime(path, (silent_s, silent_s))
    claim.touch()
    assert path.stat().st_mtime > silent_s + SILENCE_S
    claim.release()


def test_a_half_written_claim_is_dead(path: Path) -> None:
    path.write_bytes(b'{"tok')
    Claim(path, 0).release()
