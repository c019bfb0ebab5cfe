"""Processes of one machine: signals, children, locks, and who descends from whom."""
