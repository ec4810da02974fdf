"""What comes from outside, such as settings, records, archives and answers of nodes: its text, its files."""
