"""The shared history list: its records, its files (one writer each), and the ledger that folds
them.
"""
