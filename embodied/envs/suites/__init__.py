"""Suites of environments, one module each, imported when a task asks for it."""
