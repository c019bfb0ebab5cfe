"""Runs: what a run's folder says, distrusted."""
