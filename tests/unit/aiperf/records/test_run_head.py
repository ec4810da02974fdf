"""The head of a whole run, recomputed by a shell."""

import subprocess
from pathlib import Path

from aiperf.records import run_head as heads
from aiperf.records.chain import hash_of
from aiperf.records.run_head import final_head, heads_text
from aiperf.run_directory.paths import RunPaths
from tests.support.hand_made import HandMadeRun


def test_the_shell_of_the_docstring_gives_the_same_head(tmp_path: Path) -> None:
    HandMadeRun(tmp_path).release(60, replicas=2).start_trial(1).epoch(1, 1).end(60)
    lines = (heads.__doc__ or "").split("\n")
    script = "\n".join(lines[lines.index("    hash() { sha256sum | cut -d' ' -f1; }") :])
    found = subprocess.run(["bash", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == final_head(RunPaths(tmp_path))


def test_every_change_of_a_record_or_of_the_configuration_changes_the_head(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).release(60)
    heads_seen = [final_head(run.paths)]
    run.start_trial(1)
    heads_seen.append(final_head(run.paths))
    run.paths.run.write_bytes(run.paths.run.read_bytes() + b"\n")
    heads_seen.append(final_head(run.paths))
    assert len(set(heads_seen)) == 3


def test_an_unfinished_line_does_not_count_and_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).release(60)
    before = heads_text(run.paths)
    with run.paths.history_file("primary-1").open("ab") as stream:
        stream.write(b'{"version":2')
    assert heads_text(run.paths) == before
    assert f"replica-0000-1.jsonl 0 {hash_of(b'')}\n" in before
