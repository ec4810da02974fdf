"""Files and text for readers: pages, figures, tables, and formats of other tools."""
