"""Sampling: where sequences start, which one is next, and copying them out."""
