"""Directories of scientific data: generated, cut from simulations, described and checked."""
