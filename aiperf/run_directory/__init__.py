"""The run directory: where everything lies, what the run is, and who drives it."""
