"""Bugs that the tests must notice: planted by hand, or made by mutation."""
