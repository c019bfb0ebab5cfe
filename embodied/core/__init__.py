"""Contracts every other package builds on: light to import, free of algorithms."""
