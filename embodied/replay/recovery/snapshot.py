"""Snapshot: the content of a store as compact arrays, to save replays in memory."""

from typing import Any

import numpy as np

from ..sampling.index import join
from ..storage.schema import Schema
from ..storage.store import Store

__all__ = ['dump', 'restore']


def dump(store: Store) -> dict[str, Any] | None:
    """Rows that are not evicted, column by column, with their streams."""
    schema = store.schema
    if schema is None:
        return None
    table = store.index.table
    live = np.flatnonzero(table['live'])
    chunks = {key: table[key][live] for key in ('stream', 'prev', 'first', 'fill')}
    chunks['ordinal'] = live + store.index.base
    parts = [
        join(ordinal, np.arange(first, fill))
        for ordinal, first, fill in zip(
            chunks['ordinal'], chunks['first'], chunks['fill'], strict=True
        )
    ]
    positions = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    names = [column.name for column in schema.all]
    return {
        'prefix': store.allocator.prefix,
        'schema': schema.to_json(),
        'chunksize': store.allocator.chunksize,
        'next_order': store.next_order,
        'next_ordinal': store.next_ordinal,
        'streams': store.streams.save(),
        'chunks': chunks,
        'columns': {name: store.read(name, positions) for name in names},
    }


def restore(store: Store, data: dict[str, Any] | None) -> None:
    """Fills a fresh store with what `dump` returned."""
    if data is None:
        return
    assert not store.rows, 'only a fresh store can be restored'
    allocator = store.allocator
    allocator.prefix = data['prefix']
    allocator.chunksize = data['chunksize']
    allocator.prepare(Schema.from_json(data['schema']))
    chunks, done = data['chunks'], 0
    for i, ordinal in enumerate(chunks['ordinal'].tolist()):
        stream, prev = int(chunks['stream'][i]), int(chunks['prev'][i])
        first, fill = int(chunks['first'][i]), int(chunks['fill'][i])
        number, slot = allocator.take(ordinal, stream, prev)
        store.index.add(ordinal, stream, prev, number, slot)
        segment = allocator.segments[number]
        for name, rows in data['columns'].items():
            segment.columns[name][slot, first:fill] = rows[done : done + fill - first]
        segment.table['first'][slot] = first
        segment.table['committed'][slot] = fill
        done += fill - first
        store.enter(ordinal, first, fill)
    store.index.find_stops()
    store.streams.load(data['streams'])
    store.next_order = data['next_order']
    store.next_ordinal = data['next_ordinal']
