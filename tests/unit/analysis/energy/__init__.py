"""Energy by meters outside of the nodes."""
