"""Replay: steps of many streams in bounded, crash-safe, memory-mapped segments."""

from .replay import Replay
from .sampling import selectors

__all__ = ['Replay', 'selectors']
