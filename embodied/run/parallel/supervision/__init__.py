"""Supervision: starts roles, restarts those that fail, ends the run."""
