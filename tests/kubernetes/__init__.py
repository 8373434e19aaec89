"""Checks of the chart: what it renders, and a fleet on a cluster that has no nodes."""
