"""Replay against a simple model: random traffic, crashes and reloads, no difference."""

import collections
import shutil
import tempfile

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from embodied import selectors
from embodied.replay import Replay

WORKERS = 4
SELECTORS = {
    'uniform': selectors.Uniform,
    'prioritized': lambda: selectors.Prioritized(0.8, 0.5, np.inf, True),
    'recency': lambda: selectors.Recency(1 / np.arange(1, 50)),
    'mixture': lambda: selectors.Mixture(
        {
            'u': selectors.Uniform(),
            'p': selectors.Prioritized(),
            'r': selectors.Recency(1 / np.arange(1, 50)),
        },
        {'u': 0.3, 'p': 0.4, 'r': 0.3},
    ),
}


class Row:
    """What the model knows of one step."""

    def __init__(self, worker, serial, value):
        self.worker, self.serial, self.value = worker, serial, value
        self.latent = float(value)
        self.synced = False


class ReplayMachine(RuleBasedStateMachine):
    """The model is a list of rows in the order in which they were added."""

    @initialize(
        length=st.integers(1, 7),
        room=st.integers(0, 60),
        chunksize=st.integers(1, 9),
        selector=st.sampled_from(sorted(SELECTORS)),
        on_disk=st.booleans(),
    )
    def start(self, length, room, chunksize, selector, on_disk):
        self.length, self.capacity = length, length + room
        self.chunksize, self.selector = chunksize, selector
        self.folder = tempfile.mkdtemp() if on_disk else None
        self.rows: list[Row] = []
        self.serials = [-1] * WORKERS
        self.values = 0
        self.ids: dict[int, bytes] = {}
        self.replay = self.make()

    def teardown(self):
        if getattr(self, 'folder', None):
            self.replay.close()
            shutil.rmtree(self.folder)

    def make(self):
        return Replay(
            self.length,
            self.capacity,
            self.folder,
            chunksize=self.chunksize,
            selector=SELECTORS[self.selector](),
            sync_every=0,
        )

    @rule(
        workers=st.lists(st.integers(0, WORKERS - 1), min_size=1, max_size=8),
        times=st.integers(1, 6),
    )
    def add(self, workers, times):
        for _ in range(times):
            self.send([(worker, None) for worker in workers])

    @rule(
        rows=st.lists(
            st.tuples(st.integers(0, WORKERS - 1), st.integers(0, 3)), max_size=6
        )
    )
    def resend(self, rows):
        """Rows that may be there already: up to three steps back."""
        alive = {row.worker for row in self.rows}
        self.send([(worker, back if worker in alive else 0) for worker, back in rows])

    def send(self, rows):
        if not rows:
            return
        serials, values = [], []
        for worker, back in rows:
            serial = self.serials[worker] + 1 - (back or 0)
            serials.append(max(serial, 0))
            values.append(self.values)
            if serials[-1] > self.serials[worker]:
                self.serials[worker] = serials[-1]
                self.rows.append(Row(worker, serials[-1], self.values))
            self.values += 1
        step = {
            'x': np.array(values),
            'is_first': np.array(values) % 5 == 0,
            'dyn/deter': np.repeat(np.array(values, np.float32)[:, None], 3, 1),
        }
        self.replay.add_batch(step, [worker for worker, _ in rows], serials)
        self.rows = self.rows[max(0, len(self.rows) - self.capacity) :]

    @precondition(lambda self: self.items())
    @rule(batch=st.integers(1, 9), mode=st.sampled_from(['train', 'report', 'eval']))
    def sample(self, batch, mode):
        data = self.replay.sample(batch, mode)
        streams = self.streams()
        known = {row.value: row for row in self.rows}
        for b in range(batch):
            first = known[int(data['x'][b, 0])]
            stream = streams[first.worker]
            at = stream.index(first)
            rows = stream[at : at + self.length]
            assert data['x'][b].tolist() == [row.value for row in rows]
            expected = np.array([row.latent for row in rows], np.float32)
            assert (data['dyn/deter'][b] == expected[:, None]).all()
            firsts = [i == 0 or row.value % 5 == 0 for i, row in enumerate(rows)]
            assert data['is_first'][b].tolist() == firsts
            for row, stepid in zip(rows, data['stepid'][b], strict=True):
                old = self.ids.setdefault(row.value, stepid.tobytes())
                assert old == stepid.tobytes()
        assert len(set(self.ids.values())) == len(self.ids)

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def update(self, data):
        """Updates of steps seen before, some of which are evicted by now."""
        values = data.draw(st.lists(st.sampled_from(sorted(self.ids)), max_size=12))
        values = sorted(set(values))
        if not values:
            return
        ids = np.stack([np.frombuffer(self.ids[v], np.uint8) for v in values])
        latents = np.random.default_rng(len(values)).random(len(values))
        latents = latents.astype(np.float32)
        self.replay.stats()
        self.replay.update(
            {
                'stepid': ids[None],
                'dyn/deter': np.repeat(latents[None, :, None], 3, 2),
                'priority': latents[None],
            }
        )
        known = {row.value: row for row in self.rows}
        for value, latent in zip(values, latents, strict=True):
            if value in known:
                known[value].latent = latent
        stale = sum(value not in known for value in values)
        assert self.replay.stats()['stale'] == stale

    @rule()
    def reload(self):
        """Saves and continues in a new object, which draws the same samples."""
        state = self.replay.save()
        expected = (
            self.replay.sample(3)['x'] if self.items() and not self.folder else None
        )
        if self.folder:
            self.replay.close()
            self.note_synced()
        self.replay = self.make()
        self.replay.load(state)
        if expected is not None:
            np.testing.assert_array_equal(self.replay.sample(3)['x'], expected)

    @precondition(lambda self: self.folder)
    @rule()
    def crash(self):
        self.replay._folder.close()
        self.replay = self.make()

    @precondition(lambda self: self.folder)
    @rule()
    def sync(self):
        self.replay.sync()
        self.note_synced()

    @precondition(lambda self: self.folder)
    @rule()
    def lose_power(self):
        """Rows that were never synced and all latents are gone."""
        for segment in self.replay._store.allocator.segments.values():
            segment.header['boot'] = b'another boot'
            self.ids.clear()  # they are stale from now on, and other rows get others
        self.crash()
        self.rows = [row for row in self.rows if row.synced]
        for row in self.rows:
            row.latent = 0.0
        for worker, stream in self.streams().items():
            self.serials[worker] = stream[-1].serial

    @invariant()
    def sizes_agree(self):
        if hasattr(self, 'replay'):
            stats = self.replay.stats()
            assert stats['steps'] == len(self.rows)
            assert len(self.replay) == stats['items'] == self.items()

    def note_synced(self):
        for row in self.rows:
            row.synced = True

    def streams(self):
        streams = collections.defaultdict(list)
        for row in self.rows:
            streams[row.worker].append(row)
        return streams

    def items(self):
        lengths = [len(stream) for stream in self.streams().values()]
        return sum(max(0, n - self.length + 1) for n in lengths)


class LongReplayMachine(ReplayMachine):
    pass


ReplayMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None
)
LongReplayMachine.TestCase.settings = settings(
    max_examples=500, stateful_step_count=50, deadline=None
)
TestReplayAgainstModel = ReplayMachine.TestCase
TestReplayAgainstModelAtLength = pytest.mark.long(LongReplayMachine.TestCase)
