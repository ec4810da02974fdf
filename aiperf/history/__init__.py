"""The shared history list: its records, its files (one per writer), and the ledger over them."""
