"""Runs: state, options, events and pictures, read from folders that may be damaged."""
