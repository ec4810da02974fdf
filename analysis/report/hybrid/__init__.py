"""Hybrid training in a report: staleness, shares of time, and the load of the parameter servers."""
