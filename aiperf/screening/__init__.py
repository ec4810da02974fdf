"""The screening of nodes before a run: its messages, its measures and its judgement."""
