"""`python -m replica.agent.screen`: answers the orders of a screening until its input ends."""

import sys

from aiperf.signals import hold_warnings

hold_warnings()

from replica.agent.screen.program import main  # noqa: E402  (threads of libraries inherit what is blocked)

if __name__ == "__main__":
    sys.exit(main())
