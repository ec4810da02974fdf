"""`python -m replica.agent.examine`: answers one request, then ends."""

import sys

from replica.agent.examine.program import main

if __name__ == "__main__":
    sys.exit(main())
