"""Versions whose answers nobody reads: how many conversations ask them, and how their answers compare."""
