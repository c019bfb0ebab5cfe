"""Loops that run in one process."""
