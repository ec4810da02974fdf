"""The digest of a run: what the search needs of the history list, in the order of a primary.

The raw files are the truth, and the digest is made of them: a line for each trial that began and
one for each that is over. It is a hundredth of the history's size, and one file is opened to see
what is new.
"""
