"""The command line: how a verb is described, the table of verbs, and how results are printed."""
