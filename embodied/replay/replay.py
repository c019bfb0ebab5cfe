"""Replay: keeps the steps of many streams and serves sequences of them."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from embodied.core import base
from embodied.core.errors import ConfigError, ReplayError
from embodied.core.step_keys import LATENTS

from .recovery import snapshot
from .recovery.damage import Damage
from .recovery.durability import Durability
from .recovery.folder import Folder, boot_id, need_descriptors
from .recovery.loader import load_folder, load_source, refuse_difference
from .sampling.online import OnlineQueue
from .sampling.selector import Selector
from .sampling.selectors import Uniform
from .sampling.sequence_reader import Reader
from .storage.allocator import GIGABYTE, Allocator
from .storage.schema import Schema
from .storage.store import Store
from .storage.updates import Updates
from .tools.footprint import Footprint

__all__ = ['Replay']

MODES = ('train', 'report', 'eval')


class Replay(base.Replay):
    """Sequences of `length` consecutive steps of one stream, across episodes.

    length: steps per sequence, context included.
    capacity: steps to keep; the oldest go first. None: no bound.
    directory: folder of segment files; None keeps everything in memory.
    chunksize: steps per chunk of one stream.
    online: serve each non-overlapping fresh sequence once, first, in mode 'train'.
    selector: how the other sequences are drawn; None draws uniformly.
    save_wait: `save` returns when all steps so far survive a loss of power.
    name: of the replay in messages.
    seed: of all draws.
    context: serve latents of the first `context` steps only; None: of all steps.
    context_keys: keys of latents; names, or prefixes that end in a slash.
    max_gb: bound in gigabytes of stored data, besides `capacity`; 0: none.
    latents: 'disk' keeps them in the folder, 'ram' in memory, lost with the process.
    sync_every: seconds between syncs against a loss of power; 0 syncs on close only.
    load_from: folder of another run's replay, whose steps come first.
    sync: 'timer' syncs every `sync_every` seconds, 'ack' also before `add` returns.
    lost: number of steps that were not synced when the machine went down.

    Safe to use from several threads. With a directory, every step is kept as soon as
    `add` returns, and `close` gives the folder back.
    """

    def __init__(
        self,
        length: int,
        capacity: float | None = None,
        directory: Any = None,
        chunksize: int = 1024,
        online: bool = False,
        selector: Selector | None = None,
        save_wait: bool = False,
        name: str = 'unnamed',
        seed: int = 0,
        context: int | None = None,
        context_keys: Sequence[str] = LATENTS,
        max_gb: float = 0.0,
        latents: str = 'disk',
        sync_every: float = 60.0,
        load_from: Any = None,
        sync: str = 'timer',
    ):
        _check(length, capacity, chunksize, context, max_gb, latents, sync)
        self.name = name
        self.length = int(length)
        self.context = self.length if context is None else int(context)
        self._context_keys = tuple(context_keys)
        self._lock = threading.RLock()
        # Reports come when a clock says so: they must not disturb what training draws.
        self._rngs = {x: np.random.default_rng([seed, i]) for i, x in enumerate(MODES)}
        self._folder = Folder(directory) if directory else None
        limit = int(capacity) if capacity else None
        limits = int(chunksize), limit, int(max_gb * GIGABYTE) or None
        allocator = _make_allocator(self._folder, *limits, latents == 'disk')
        self._store = Store(self.length, limit, allocator)
        self._reader = Reader(self._store, self.length, self.context)
        self._online = OnlineQueue(self._store.index) if online else None
        self._selector = selector or Uniform()
        self._selector.bind(self._store)
        self._updates = Updates(self._store, self._selector)
        self._traffic = {'inserts': 0, 'samples': 0, 'updates': 0, 'stale': 0}
        self._save_wait = save_wait
        self._checked = False  # whether a step was compared with the schema
        if load_from:
            load_source(self._store, load_from)
        self.lost = 0
        if self._folder:
            self.lost = load_folder(self._store, self._folder, allocator.boot)
        self._store.trim()
        self._selector.rebuild()
        files = self._store, self._folder, self._lock, self._selector.rebuild
        self._durability = Durability(*files, sync, sync_every)

    def __len__(self) -> int:
        with self._lock:
            return len(self._store.index)

    @property
    def inserts(self) -> int:
        """Steps ever added, over restarts."""
        return self._store.next_order

    @property
    def salt(self) -> int:
        """Another number after each loss of acknowledged steps. Streams that go on must
        get other names then, since what follows does not follow what is stored."""
        if self._folder is None or self._durability.sync_first:
            return 0
        return int.from_bytes(self._folder.metadata.prefix) >> 1  # not negative

    def add(self, step: Mapping[str, Any], worker: int = 0) -> None:
        row = {key: np.asarray(value)[None] for key, value in step.items()}
        self.add_batch(row, [worker])

    def add_batch(self, steps: base.Batch, workers: Any, serials: Any = None) -> None:
        """Appends row i of every [N, ...] array to the stream of workers[i].

        serials: number of each step within its stream, growing; steps that are there
        already are skipped, so a batch may be sent again after any failure; `inserts`
        tells how many were new.
        """
        names = np.asarray(workers, np.int64).tolist()
        numbers = None if serials is None else np.asarray(serials, np.int64)
        with self._lock:
            arrays = self._fit(steps, len(names))
            if len(set(names)) == len(names):
                self._append(arrays, names, numbers)
            else:
                self._append_in_turn(arrays, names, numbers)
        if self._durability.sync_first:
            self._durability.sync()

    def sample(
        self, batch: int, mode: base.Mode = 'train', out: base.Batch | None = None
    ) -> base.Batch:
        """[batch, length, ...] per key; latents [batch, context, ...].

        out: arrays to write to, of the shapes and dtypes that `batch_spec` names.
        """
        if mode not in MODES:
            raise ReplayError(f"Unknown mode '{mode}'. Choose one of {MODES}.")
        with self._lock:
            if not len(self._store.index):
                raise ReplayError(
                    f"Replay '{self.name}' has {self._store.rows} steps but no "
                    f'sequence of {self.length} yet. Check len(replay) before sampling.'
                )
            starts = self._choose(batch, mode)
            out = self._reader.allocate(batch) if out is None else out
            job = self._reader.begin(starts, out)
        # Without the lock: the bulk of the bytes, in rows that never change.
        self._reader.finish(job, out)
        return out

    def batch_spec(self, batch: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype per key of a sampled batch; needs one step to be there."""
        with self._lock:
            if self._store.schema is None:
                raise ReplayError(
                    'The shapes of a batch are known after the first step.'
                )
            return self._reader.spec(batch)

    def update(self, data: base.Batch) -> None:
        """Overwrites columns, and priorities, of the steps data['stepid'] [B, T, 20].

        Steps that are evicted by now are skipped and counted.
        """
        with self._lock:
            steps, stale = self._updates.apply(data)
            self._traffic['updates'] += steps
            self._traffic['stale'] += stale

    def stats(self) -> base.Metrics:
        """Content and its bounds, 0 for none; traffic since the last call."""
        with self._lock:
            traffic, inserts = dict(self._traffic), self._traffic['inserts']
            self._traffic = dict.fromkeys(self._traffic, 0)
            ratio = self.length * traffic['samples'] / inserts if inserts else 0.0
            return {
                'items': len(self._store.index),
                'steps': self._store.rows,
                'streams': len(self._store.streams),
                'chunks': int(self._store.index.table['live'].sum()),
                'gigabytes': self._store.allocator.nbytes / GIGABYTE,
                'max_steps': self._store.allocator.capacity or 0,
                'max_gigabytes': (self._store.allocator.max_bytes or 0) / GIGABYTE,
                'online_queue': len(self._online or ()),
                'replay_ratio': ratio,
                **traffic,
                **self._selector.stats(),
            }

    def save(self) -> Any:
        """Everything that `load` needs to go on with the same samples.

        With a directory this is small: the content is in its files already.
        """
        if self._save_wait:
            self.sync()
        with self._lock:
            return {
                'content': None if self._folder else snapshot.dump(self._store),
                'order': self._store.next_order,
                'streams': self._store.streams.save(),
                'rngs': {k: v.bit_generator.state for k, v in self._rngs.items()},
                'online': None if self._online is None else self._online.save(),
            }

    def load(self, data: Any) -> None:
        """Continues from `save`; steps in the directory that are newer stay."""
        with self._lock:
            if not self._store.rows:
                snapshot.restore(self._store, data['content'])
            elif not self._folder and data['content'] is not None:
                raise ReplayError(
                    'A replay in memory can only be loaded while it is empty. Make a '
                    'new one and load it first.'
                )
            for mode, state in data['rngs'].items():
                self._rngs[mode].bit_generator.state = state
            if self._online is not None and data['online'] is not None:
                self._online.load(data['online'])
            self._recount(data['streams'], data['order'])
            self._selector.rebuild()

    def shrink(self, max_gb: float) -> None:
        """Evicts the oldest steps until the files take at most `max_gb`."""
        with self._lock:
            self._selector.evicted(self._store.shrink(max_gb * GIGABYTE))

    def sync(self) -> None:
        """Makes all steps so far survive a loss of power."""
        self._durability.sync()

    def take_damages(self) -> list[Damage]:
        """What was found to be wrong with the files since the last call."""
        return self._durability.take_damages()

    def finish_checks(self) -> None:
        """Waits until all full chunks so far have their checksums or are verified."""
        self._durability.finish_checks()

    def close(self) -> None:
        """Syncs, latents included, and gives the folder back. Then nothing works."""
        self._durability.close()

    def _recount(self, streams: dict[str, Any], order: int) -> None:
        """Numbers the rows of each stream as before, with those added since `order`."""
        saved = dict(zip(streams['workers'].tolist(), streams['count'], strict=True))
        table = self._store.streams
        for slot, worker in enumerate(table.workers):
            count = int(saved.get(worker, 0))
            table.count[slot] = count + self._store.rows_since(slot, order)
            if self._online is not None:
                self._online.catch_up(self._store, slot, count)

    def _fit(self, steps: Mapping[str, Any], count: int) -> base.Batch:
        if not self._checked:
            self._check_schema(Schema.of(steps, count, self._context_keys))
            self._checked = True
        assert self._store.schema is not None
        return self._store.schema.fit(steps, count)

    def _check_schema(self, schema: Schema) -> None:
        allocator = self._store.allocator
        if allocator.schema is not None:
            home = self._folder.path if self._folder else 'the source'
            refuse_difference(allocator.schema, schema, home)
        else:
            allocator.prepare(schema)
        latents = 0 if allocator.latents_in_file else schema.latent_bytes
        footprint = Footprint.of(
            schema.row_bytes - latents,
            allocator.capacity,
            allocator.max_bytes,
            allocator.folder,
            latents,
        )
        footprint.report()
        if allocator.folder:
            total = footprint.needed // allocator.segment_bytes
            need_descriptors(max(0, total - len(allocator.segments)))

    def _append_in_turn(
        self, steps: base.Batch, workers: list[int], serials: base.Array | None
    ) -> None:
        """In parts that hold one row of a stream at most."""
        for rows in _turns(workers):
            self._append(
                {key: value[rows] for key, value in steps.items()},
                workers[rows],
                None if serials is None else serials[rows],
            )

    def _append(
        self, steps: base.Batch, workers: list[int], serials: base.Array | None
    ) -> None:
        new = self._store.append(steps, workers, serials)
        if not len(new.positions):
            return
        self._selector.added(new.positions, new.starts)
        if new.evicted:
            self._selector.evicted(new.evicted)
        if self._online is not None:
            self._online.added(new)
        self._traffic['inserts'] += len(new.positions)
        self._durability.seal_filled()

    def _choose(self, batch: int, mode: str) -> base.Array:
        train, rng = mode == 'train', self._rngs[mode]
        if not train:
            return self._selector.draw(rng, batch, train)
        self._traffic['samples'] += batch
        if self._online is None:
            return self._selector.draw(rng, batch, train)
        fresh = self._online.take(batch)
        if len(fresh) == batch:
            return fresh
        drawn = self._selector.draw(rng, batch - len(fresh), train)
        return np.concatenate([fresh, drawn])


def _make_allocator(
    folder: Folder | None,
    chunksize: int,
    capacity: int | None,
    max_bytes: int | None,
    latents_in_file: bool,
) -> Allocator:
    """Allocator of chunks in the files of a folder or, without one, in memory."""
    return Allocator(
        folder.metadata.store if folder else os.urandom(8),
        chunksize,
        capacity,
        max_bytes,
        folder.path if folder else None,
        boot_id(),
        latents_in_file,
    )


def _check(
    length: int,
    capacity: float | None,
    chunksize: int,
    context: int | None,
    max_gb: float,
    latents: str,
    sync: str,
) -> None:
    if length < 1 or chunksize < 1 or max_gb < 0:
        raise ConfigError(
            f'Replay got length={length}, chunksize={chunksize}, max_gb={max_gb}: '
            f'length and chunksize must be at least 1, max_gb at least 0.'
        )
    if capacity is not None and capacity < length:
        raise ConfigError(
            f'Replay with a capacity of {capacity} steps never holds a sequence of '
            f'{length}. Raise replay.size or lower the sequence length.'
        )
    if latents not in ('disk', 'ram'):
        raise ConfigError(f"replay.latents={latents!r} must be 'disk' or 'ram'.")
    if sync not in ('timer', 'ack'):
        raise ConfigError(f"replay.sync={sync!r} must be 'timer' or 'ack'.")
    if context is not None and not 0 <= context <= length:
        raise ConfigError(
            f'context={context} must lie between 0 and the length of {length} steps.'
        )


def _turns(workers: Sequence[int]) -> Iterator[slice]:
    """Rows in order, split where a worker comes up again."""
    seen: set[int] = set()
    begin = 0
    for row, worker in enumerate(workers):
        if worker in seen:
            yield slice(begin, row)
            begin, seen = row, set()
        seen.add(worker)
    yield slice(begin, len(workers))
