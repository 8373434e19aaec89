"""Incidents that are kept by their symptoms, with what helped."""
