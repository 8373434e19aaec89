"""Forecasts of what will be asked in some minutes, and how sure they are."""
