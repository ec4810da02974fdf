"""`python -m replica`: the agent that a launcher starts."""

import sys

from aiperf.files import keep_others_from_writing
from aiperf.registry import uncollected
from aiperf.signals import hold_warnings

hold_warnings()
with uncollected():
    from replica.agent.agent import main

keep_others_from_writing()
sys.exit(main())
