"""The engine by torch."""
