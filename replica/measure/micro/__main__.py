"""The micro suite on one stack, in a process of its own: `python -m replica.measure.micro OPTIONS`.

The options are those of `aiperf micro`, which starts it when there are several stacks.
"""

import argparse
import sys

from aiperf.cli.lines import warn
from aiperf.errors import AiperfError
from aiperf.signals import die_with_parent
from replica.measure.micro.cli import MICRO


def main() -> int:
    """Measure, and print in the format asked for; exit code 1 with the reason if it fails."""
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m replica.measure.micro")
    MICRO.configure(parser)
    try:
        return MICRO.execute(parser.parse_args())
    except AiperfError as error:
        warn(f"aiperf: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
