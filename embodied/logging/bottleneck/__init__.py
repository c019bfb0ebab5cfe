"""Bottleneck: what holds a run up, and what to change, for terminal and dashboard."""

from .verdict import METRICS, WINDOW, Bottleneck, find_bottleneck, window_of

__all__ = ['METRICS', 'WINDOW', 'Bottleneck', 'find_bottleneck', 'window_of']
