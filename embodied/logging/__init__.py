"""Metrics, episode scores and pictures of a run, and the places they are written to.

The terminal view and the video writer are imported from their own modules, by those
who want them: they load rich and Pillow.
"""

from .episodes import EpisodeStats
from .jsonl import (
    EVENTS,
    EventFile,
    JsonlOutput,
    ScoreFile,
    add_event,
    last_record,
    read_records,
    read_scores,
)
from .logger import Logger

__all__ = [
    'EVENTS',
    'EpisodeStats',
    'EventFile',
    'JsonlOutput',
    'Logger',
    'ScoreFile',
    'add_event',
    'last_record',
    'read_records',
    'read_scores',
]
