"""The head of a whole run: one hash that all its records stand behind.

It is the SHA-256 of a text with a line for `run.json` and one for each file of the history list:

    run.json HASH
    NAME LINES HASH

The hash of `run.json` is that of its bytes. Files follow in the order of their names; LINES is the
number of complete lines, and HASH that of the last of them without its newline, or of no bytes if
there is none. As each record carries the hash of the one before, the last one stands for all. In a
run directory whose files end in complete lines a shell gives the same:

    hash() { sha256sum | cut -d' ' -f1; }
    { echo "run.json $(hash < run.json)"; cd history
      for name in $(LC_ALL=C ls *.jsonl); do
        echo "$name $(wc -l < $name) $(tail -n 1 $name | tr -d '\\n' | hash)"
      done; } | hash
"""

from pathlib import Path

from aiperf.records.chain import first_link, hash_of
from aiperf.records.history_files import read_from
from aiperf.run_directory.paths import RunPaths


def final_head(paths: RunPaths) -> str:
    """The head of a run's records as they are now, as 64 hex digits. Raises OSError."""
    return hash_of(heads_text(paths).encode())


def heads_text(paths: RunPaths) -> str:
    """The text that `final_head` is the hash of. Raises OSError."""
    lines = [f"run.json {first_link(paths)}\n"]
    lines += [f"{file.name} {_count_and_hash(file)}\n" for file in paths.history_files()]
    return "".join(lines)


def _count_and_hash(file: Path) -> str:
    data = read_from(file)
    end = data.rfind(b"\n")
    # Without a complete line `end` is -1, and the slice is empty.
    last = data[data.rfind(b"\n", 0, max(end, 0)) + 1 : max(end, 0)]
    count = data.count(b"\n")
    return f"{count} {hash_of(last)}"
