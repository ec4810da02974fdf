"""Many rounds of takers: python -m tests.hardening.claim --rounds 10000 [--seed 1].

The last line is `claims: rounds=<n> holders=<n> deaths=<n> doubles=<n> stuck=<n>`; the last two
must be 0.
"""

import argparse
import sys

from tests.hardening.claim.rounds import play

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tally = play(arguments.rounds, arguments.seed)
    sys.stdout.write(f"{tally}\n")
    sys.exit(1 if tally.doubles or tally.stuck else 0)
