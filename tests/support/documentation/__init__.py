"""The documentation: its documents and their commands, and the site that is made of them."""
