"""Replay: steps of many streams in bounded, crash-safe, memory-mapped segments."""

from . import selectors
from .replay import Replay

__all__ = ['Replay', 'selectors']
