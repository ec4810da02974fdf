"""The power of an audit, measured: honest and dishonest runs, and how many of each it finds."""
