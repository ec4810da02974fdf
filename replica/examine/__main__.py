"""`python -m replica.examine`: answers one request, then ends."""

import sys

from replica.examine.program import main

if __name__ == "__main__":
    sys.exit(main())
