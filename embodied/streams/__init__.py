"""Iterators over batches that can be saved and restored in mid-sequence."""

from .combine import Map, Mixer, Zip
from .consec import Consec
from .prefetch import Prefetch
from .stateless import Stateless

__all__ = ['Consec', 'Map', 'Mixer', 'Prefetch', 'Stateless', 'Zip']
