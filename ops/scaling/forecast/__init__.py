"""Forecasts of what will be asked some minutes from now, and how sure they are."""
