"""Saves of all roles that belong together."""
