"""Reader: assembles sampled sequences into batches, one copy per column."""

import resource

import numpy as np

from embodied.core.base import Array, Batch

from ..storage.column_layout import ALIGN
from ..storage.row_access import ID_BYTES, Piece, is_broken
from ..storage.schema import VERSION, Column
from ..storage.store import Store

__all__ = ['Reader']

COLD = 64  # batches after a miss
WHO = getattr(resource, 'RUSAGE_THREAD', resource.RUSAGE_SELF)


class Reader:
    """Copies sequences of `length` steps, latents for the first `context` of them."""

    def __init__(self, store: Store, length: int, context: int):
        self._store = store
        self._length = length
        self._context = context
        self._cold = 0  # batches for which rows are still fetched ahead

    def spec(self, batch: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of every key of a batch."""
        spec = {
            column.name: ((batch, self._steps(column), *column.shape), column.dtype)
            for column in self._columns()
        }
        spec['stepid'] = ((batch, self._length, ID_BYTES), np.dtype(np.uint8))
        return spec

    def allocate(self, batch: int) -> Batch:
        return {key: _aligned(*value) for key, value in self.spec(batch).items()}

    def begin(self, starts: Array, out: Batch) -> list[Piece]:
        """Finds rows, writes ids, copies latents: needs the lock of the store."""
        pieces = self._store.plan(starts, self._length)
        self._store.identify(pieces, out['stepid'])
        latents = [c.name for c in self._columns() if c.latent]
        if latents and self._context:
            context = self._store.plan(starts, self._context)
            self._fetch(context, [VERSION.name, *latents])
            self._copy_latents(context, latents, out)
        return pieces

    def finish(self, pieces: list[Piece], out: Batch) -> None:
        """Copies the columns that are written once, then marks borders."""
        names = [column.name for column in self._columns() if not column.latent]
        targets = [(name, out[name]) for name in names]
        faults = _major_faults()
        self._fetch(pieces, names)
        for _, segment, slot, index, count, row, offset in pieces:
            columns = segment.columns
            for name, target in targets:
                target[row, offset : offset + count] = columns[name][
                    slot, index : index + count
                ]
        _annotate(out)
        self._cold = COLD if _major_faults() > faults else max(0, self._cold - 1)

    def _fetch(self, pieces: list[Piece], names: list[str]) -> None:
        """While the page cache misses: reads all rows of a batch at once, and no more.

        Left to itself, the system waits for the disk at every gap and reads megabytes
        around it. When all is cached, asking would take longer than the copies.
        """
        if self._cold:
            for _, segment, slot, index, count, _, _ in pieces:
                segment.fetch(names, slot, index, count)

    def _copy_latents(self, pieces: list[Piece], names: list[str], out: Batch) -> None:
        for _, segment, slot, index, count, row, offset in pieces:
            rows = slice(index, index + count)
            version = segment.columns[VERSION.name][slot, rows]
            broken = is_broken(version)
            for name in names:
                target = out[name][row, offset : offset + count]
                target[:] = segment.columns[name][slot, rows]
                if broken.any():
                    target[broken] = 0

    def _columns(self) -> list[Column]:
        assert self._store.schema is not None
        return list(self._store.schema.columns.values())

    def _steps(self, column: Column) -> int:
        return self._context if column.latent else self._length


def _major_faults() -> int:
    """How many pages this thread has waited for the disk to fill."""
    return resource.getrusage(WHO).ru_majflt


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """New array that begins, like the columns, at a cache line: copies are faster."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    room = np.empty(nbytes + ALIGN, np.uint8)
    start = -room.ctypes.data % ALIGN
    return room[start : start + nbytes].view(dtype).reshape(shape)


def _annotate(batch: Batch) -> None:
    """A sequence begins like an episode; an abandoned episode ends before the next."""
    first, last = batch.get('is_first'), batch.get('is_last')
    if first is not None and last is not None:
        last[:, :-1] |= first[:, 1:]
    if first is not None:
        first[:, 0] = True
