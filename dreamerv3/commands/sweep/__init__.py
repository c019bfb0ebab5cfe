"""`dreamer sweep`: many runs, a few at a time, and a table of their scores."""

from .command import main

__all__ = ['main']
