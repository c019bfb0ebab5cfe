"""Environments of our own, which need no other package."""
