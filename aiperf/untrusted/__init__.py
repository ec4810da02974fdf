"""Input from outside: its text and its files."""
