"""Parts for tests of the data roles: args, rows, foreign replays and a NumPy agent."""

import threading

import elements
import numpy as np

from embodied import transport
from embodied.replay import Replay
from embodied.run.parallel.context import RoleContext
from embodied.streams import Consec, Stateless

DEADLINE = 60.0  # seconds; only against tests that hang
SHORT = 0.2  # seconds in which something must not happen
ARGS = {  # what differs from the defaults
    'steps': 10**9,
    'train_ratio': 8.0,
    'envs': 4,
    'eval_envs': 1,
    'batch_size': 3,
    'batch_length': 4,
    'report_length': 4,
    'log_every': 0.0,
    'report_every': 0.0,
    'save_every': 0.0,
    'usage': False,
}
LENGTH = 5  # steps per sequence with these args


def make_args(logdir, **changes):
    ports = {
        f'{role}_addr': f'localhost:{transport.free_port()}'
        for role in ('actor', 'replay', 'logger')
    }
    return elements.Config({**ARGS, **ports, 'logdir': str(logdir), **changes})


def make_context(logdir, **changes):
    return RoleContext.of(make_args(logdir, **changes))


def make_rows(count, serial=0, streams=None):
    """One step of each of `count` streams, with its serial number as content."""
    streams = np.arange(count) if streams is None else np.asarray(streams)
    steps = {
        'number': np.full(count, serial, np.int32),
        'reward': np.ones(count, np.float32),
        'is_first': np.full(count, serial % 10 == 0),
        'is_last': np.full(count, serial % 10 == 9),
        'is_terminal': np.full(count, serial % 10 == 9),
        'action': np.zeros(count, np.int32),
        'dyn/deter': np.zeros((count, 2), np.float32),
    }
    return steps, streams.astype(np.int64), np.full(count, serial, np.int64)


def make_replay(directory=None, **options):
    return Replay(LENGTH, capacity=10_000, directory=directory, chunksize=64, **options)


def make_stream(replay, mode):
    source = Stateless(replay.sample, ARGS['batch_size'], mode)
    return Consec(source, ARGS['batch_length'], 1, prefix=1, contiguous=True)


class ListReplay:
    """Foreign: only add and sample, one list of steps per worker."""

    def __init__(self):
        self.streams = {}
        self.rng = np.random.default_rng(0)

    def add(self, step, worker=0):
        self.streams.setdefault(worker, []).append(dict(step))

    def sample(self, batch, mode='train'):
        long = [x for x in self.streams.values() if len(x) >= LENGTH]
        sequences = []
        for _ in range(batch):
            stream = long[self.rng.integers(len(long))]
            start = self.rng.integers(len(stream) - LENGTH + 1)
            sequences.append(stream[start : start + LENGTH])
        keys = sequences[0][0].keys()
        return {k: np.array([[x[k] for x in seq] for seq in sequences]) for k in keys}


def foreign_stream(replay, mode):
    """A generator: an iterator without a position."""
    while True:
        yield replay.sample(ARGS['batch_size'], mode)


class Agent:
    """Counts what it trains on; latents are the number of the update."""

    def __init__(self):
        self.updates = 0
        self.reports = 0
        self.numbers = []
        self.changed = threading.Condition()

    def init_train(self, batch_size):
        return np.zeros(batch_size)

    def train(self, carry, batch):
        shape = batch['number'].shape
        assert shape == (ARGS['batch_size'], LENGTH), shape
        with self.changed:
            self.updates += 1
            self.numbers.append(int(batch['number'].max()))
            self.changed.notify_all()
        outs = {}
        if 'stepid' in batch:
            latent = np.full((*shape, 2), self.updates, np.float32)
            outs = {'replay': {'stepid': batch['stepid'], 'dyn/deter': latent}}
        return carry + 1, outs, {'loss': 1 / self.updates}

    def wait_for_updates(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.updates >= count, DEADLINE)

    def wait_for_reports(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.reports >= count, DEADLINE)

    def init_report(self, batch_size):
        return ()

    def report(self, carry, batch):
        with self.changed:
            self.reports += 1
            self.changed.notify_all()
        return carry, {'error': 0.5, 'video': np.zeros((2, 4, 4, 3), np.uint8)}

    def stream(self, source):
        return source

    def save(self):
        return {'updates': self.updates}

    def load(self, data, regex=None):
        self.updates = data['updates']


class Worker(threading.Thread):
    """Runs a function; `join` raises what it raised, or if it does not end."""

    def __init__(self, fn, *args):
        super().__init__(daemon=True)
        self._fn, self._args, self._error = fn, args, None
        self.result = None
        self.children = []  # where portal notes the threads that it starts
        self.start()

    def run(self):
        try:
            self.result = self._fn(*self._args)
        except BaseException as error:  # noqa: BLE001 (raised by join)
            self._error = error

    def check(self):
        if self._error:
            raise self._error

    def join(self, timeout=DEADLINE):
        super().join(timeout)
        self.check()
        assert not self.is_alive(), self._fn
        return self.result


def is_waiting(worker):
    """Whether it is blocked, as far as one can tell."""
    threading.Thread.join(worker, SHORT)
    return worker.is_alive()
