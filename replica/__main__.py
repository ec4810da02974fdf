"""`python -m replica`: the agent that a launcher starts."""

import sys

from replica.agent import main

sys.exit(main())
