"""The program that draws the sign of life of another one, which ends it.

A verb that is in the middle of one long call, such as loading TensorFlow, runs no other line of
Python: no thread, and no handler of a signal. So this is a process. It is started by its path and
imports as little as it can, to be there within a few hundredths of a second.

Arguments: the verb's process; when it began and when the first sign is due (s, of the monotonic
clock, which all processes share); the seconds between signs; the verb. Standard input has notes, a
line each. Exits when standard input ends, or when the verb's process is gone.
"""

import os
import select
import sys
import time


def main() -> None:
    """Draw the sign again and again. Raises OSError if the terminal was closed."""
    parent, (began_s, due_s, next_s), verb = int(sys.argv[1]), map(float, sys.argv[2:5]), sys.argv[5]
    on_terminal, note = os.isatty(2), "working"
    while os.getppid() == parent:
        now_s = time.monotonic()
        if select.select([0], [], [], max(0.0, min(due_s - now_s, next_s)))[0]:
            data = os.read(0, 65536)
            if not data:
                return
            note = data.decode(errors="replace").splitlines()[-1]
        elif now_s >= due_s:
            text = f"aiperf {verb}: {note}, {now_s - began_s:.0f} s"
            line = f"\r\x1b[K{text}" if on_terminal else f"{text}\n"
            os.write(2, line.encode(errors="replace"))
            due_s = now_s + next_s


if __name__ == "__main__":
    try:
        main()
    except OSError:
        sys.exit(1)
