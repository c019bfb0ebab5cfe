"""Datasets: recorded episodes of several formats, for training without environments.

Only what trains from them imports this package; Minari is imported when a dataset of it
is read or written.
"""

from .filling import Filled, fill
from .fitting import Fitting, spaces_of
from .opening import open_source
from .replay_files import ReplayFiles
from .source import Source

__all__ = [
    'Filled',
    'Fitting',
    'ReplayFiles',
    'Source',
    'fill',
    'open_source',
    'spaces_of',
]
