"""Incidents stored with their symptoms and with what helped."""
