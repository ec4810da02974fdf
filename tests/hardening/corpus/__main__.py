"""Hand over the whole corpus: `python -m tests.hardening.corpus [--rows keras] [--every 10]`.

The last line is `corpus: inputs=<n> refused=<n> flaws=<n>`; the last number must be 0.
"""

import argparse
import sys

from tests.hardening.corpus.judge import ROWS, Tally, judged


def main() -> int:
    """Hand it over; 1 if an answer was not as it should be, or a row is too short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    total = Tally()
    for name in arguments.rows.split(","):
        tally, least = judged(name, arguments.every), ROWS[name][0] // arguments.every
        if tally.inputs < least:
            tally.flaws.append(f"the row has {tally.inputs} inputs, and must have {least}")
        _show(f"{name}: inputs={tally.inputs} refused={tally.refused} flaws={len(tally.flaws)}")
        for flaw in tally.flaws:
            _show(f"  {flaw}")
        total.add(tally)
    _show(f"corpus: inputs={total.inputs} refused={total.refused} flaws={len(total.flaws)}")
    return 1 if total.flaws else 0


def _show(text: str) -> None:
    sys.stdout.write(text.encode("ascii", "backslashreplace").decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
