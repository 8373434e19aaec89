"""Decide how many workers are wanted by what is asked, and publish the number."""
