"""What is written for readers: pages, figures, tables, and formats of other tools."""
