"""Filming: collects the images of one episode at a time."""

import threading
import time

import numpy as np

from ...clock import LocalClock
from ...core import base

__all__ = ['Filming']

IMAGE_ROWS = 4  # dimensions of [n, H, W, C]


class Filming:
    """Films the first episode that begins every `every` seconds; 0 films none.

    A film ends with its episode or after `frames` frames. One whose environment has
    been silent for `patience` seconds is thrown away. Several threads may use it.
    """

    def __init__(self, every: float, frames: int, patience: float):
        self._due = LocalClock(every, first=True)
        self._frames = frames
        self._patience = patience
        self._envid: int | None = None  # environment that is being filmed
        self._film: dict[str, list[base.Array]] = {}
        self._heard = 0.0  # time of its last frame
        self._lock = threading.Lock()

    def add(self, trans: base.Batch, envids: base.Array) -> base.Batch:
        """Takes one step of each environment, [n, ...] per key.

        Returns the film {key: [T, H, W, C]} that is now complete, or an empty one.
        """
        with self._lock:
            row = self._find_row(trans['is_first'], envids)
            if row is None:
                return {}
            if trans['is_first'][row]:
                self._envid, self._film = int(envids[row]), {}
            self._expose(trans, row)
            length = max(map(len, self._film.values()), default=0)
            if not trans['is_last'][row] and length < self._frames:
                return {}
            film, self._envid, self._film = self._film, None, {}
        return {key: np.stack(frames) for key, frames in film.items()}

    def _expose(self, trans: base.Batch, row: int) -> None:
        self._heard = time.monotonic()
        for key, images in trans.items():
            if images.dtype == np.uint8 and images.ndim == IMAGE_ROWS:
                frames = self._film.setdefault(key, [])
                # Images for the log need not all have one size, but films do.
                if not frames or frames[0].shape == images[row].shape:
                    frames.append(images[row].copy())

    def _find_row(self, is_first: base.Array, envids: base.Array) -> int | None:
        """The row of the filmed environment, or of the one to film from now on."""
        if self._envid is not None:
            rows = np.flatnonzero(envids == self._envid)
            if len(rows):
                return int(rows[0])
            if time.monotonic() < self._heard + self._patience:
                return None
            self._envid = None
        if is_first.any() and self._due():
            return int(np.argmax(is_first))
        return None
