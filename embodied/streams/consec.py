"""Stream that cuts each sampled sequence into consecutive chunks."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from embodied.core import base
from embodied.core.errors import ConfigError, ReplayError

from .stateless import load_stream, save_stream

__all__ = ['Consec']


class Consec(base.Stream):
    """Turns [B, consec * length + prefix, ...] into `consec` overlapping chunks.

    With length 3, consec 3 and prefix 2 (p: prefix, #: trained steps):

        source   0 1 2 3 4 5 6 7 8 9 10
        chunk 0  p p # # #
        chunk 1        p p # # #
        chunk 2              p p # # #

    Every chunk carries `consec` int32 [B, length + prefix], its own number. Keys that
    are shorter than the sequence hold latents of its context steps: chunk 0 carries
    them, later chunks carry zeros of the same shape, since they continue from the
    carry of the chunk before and one shape means one compiled program. Sequences that
    are longer than needed are an error if `strict`, else their end is left out.
    """

    def __init__(
        self,
        source: Iterable[base.Batch],
        length: int,
        consec: int,
        prefix: int = 0,
        strict: bool = True,
        contiguous: bool = True,
    ):
        if length < 1 or consec < 1 or prefix < 0:
            raise ConfigError(
                f'Consec got length={length}, consec={consec}, prefix={prefix}: length '
                f'and consec must be at least 1 and prefix at least 0.'
            )
        self._source = iter(source)
        self._length = length
        self._consec = consec
        self._prefix = prefix
        self._strict = strict
        self._contiguous = contiguous
        self._index = 0
        self._current: base.Batch | None = None

    def __next__(self) -> base.Batch:
        if self._current is None:
            self._current = next(self._source)
            self._index = 0
        total = self._check(self._current)
        start = self._index * self._length
        stop = start + self._length + self._prefix
        chunk = {
            key: value[:, start:stop]
            if value.shape[1] == total
            else self._latent(value)
            for key, value in self._current.items()
        }
        batch = len(next(iter(chunk.values())))
        chunk['consec'] = np.full((batch, stop - start), self._index, np.int32)
        if self._contiguous:
            chunk = {key: np.ascontiguousarray(value) for key, value in chunk.items()}
        self._index += 1
        if self._index == self._consec:
            self._current = None
        return chunk

    def save(self) -> Any:
        return {
            'source': save_stream(self._source),
            'index': self._index,
            'current': self._current,
        }

    def load(self, data: Any) -> None:
        load_stream(self._source, data['source'])
        self._index = data['index']
        self._current = data['current']

    def _check(self, batch: base.Batch) -> int:
        total = max(value.shape[1] for value in batch.values())
        needed = self._consec * self._length + self._prefix
        if total < needed or (self._strict and total != needed):
            raise ReplayError(
                f'Consec needs sequences of {needed} steps ({self._consec} chunks of '
                f'{self._length} plus {self._prefix} of context) but the source gave '
                f'{total}. Make the replay with length={needed}'
                + (', or pass strict=False.' if total > needed else '.')
            )
        return total

    def _latent(self, value: base.Array) -> base.Array:
        return np.zeros_like(value) if self._index else value
