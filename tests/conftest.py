"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadlines: machines are shared. In CI the same examples every time, so that a red run is about the change.
settings.register_profile("shared", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("shared")
