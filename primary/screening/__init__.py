"""The screening of a cluster before a run: which node is bad."""
