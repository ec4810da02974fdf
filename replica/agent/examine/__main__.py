"""`python -m replica.agent.examine`: answers one request, then ends."""

import sys

from aiperf.signals import hold_warnings

hold_warnings()

from replica.agent.examine.program import main  # noqa: E402  (threads of libraries inherit what is blocked)

if __name__ == "__main__":
    sys.exit(main())
