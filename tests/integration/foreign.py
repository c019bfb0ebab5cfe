"""Parts from outside of the repository: nothing here inherits from it or imports it.

The agent's policy carry is a Python list, it has no `policy_rows`, its `stream` returns
its argument and `save` contains no arrays. The replay is a list per worker and knows
`add` and `sample`, the stream is a generator, the logger one of `elements`.
"""

import os
import sys
import threading
from pathlib import Path

import elements
import numpy as np

SIZE = 3  # entries of the observed vector
BATCH, LENGTH, CONTEXT = 3, 4, 1
ARGS = {
    'envs': 3,
    'eval_envs': 1,
    'eval_eps': 2,
    'steps': 300,
    'train_ratio': 4.0,
    'batch_size': BATCH,
    'batch_length': LENGTH,
    'log_every': 0.5,
    'report_every': 0.0,
    'usage': {'psutil': True, 'nvsmi': False},
}


def make_args(logdir, **changes):
    """What differs from the defaults, and the options that a test sets."""
    return elements.Config({**ARGS, 'logdir': str(logdir), **changes})


class Env:
    """Rewards following the sign of the first entry; episodes have nine steps."""

    obs_space = {
        'vector': elements.Space(np.float32, (SIZE,)),
        'image': elements.Space(np.uint8, (4, 4, 3)),
        'reward': elements.Space(np.float32),
        'is_first': elements.Space(bool),
        'is_last': elements.Space(bool),
        'is_terminal': elements.Space(bool),
        'log/visits': elements.Space(np.float32),
    }
    act_space = {
        'action': elements.Space(np.int32, (), 0, 2),
        'reset': elements.Space(bool),
    }

    def __init__(self, index, fails_at=None, on_close=None):
        assert 'jax' not in sys.modules
        self.rng = np.random.default_rng(index)
        self.vector = np.zeros(SIZE, np.float32)
        self.count = self.total = 0
        self.fails_at = fails_at
        self.close = on_close or (lambda: None)

    def step(self, action):
        self.total += 1
        if self.total == self.fails_at:
            raise ValueError('the simulator fell over')
        first = bool(action['reset'])
        self.count = 0 if first else self.count + 1
        reward = 0.0 if first else float(action['action'] == (self.vector[0] > 0))
        self.vector = self.rng.normal(size=SIZE).astype(np.float32)
        last = self.count == 9
        return {
            'vector': self.vector,
            'image': np.full((4, 4, 3), self.count, np.uint8),
            'reward': np.float32(reward),
            'is_first': first,
            'is_last': last,
            'is_terminal': last,
            'log/visits': np.float32(self.total),
        }


class Agent:
    """Learns which sign to follow. At update `at`, calls `action`."""

    def __init__(self, at=None, action=None):
        self.rng = np.random.default_rng(7)
        self.weights = [0.0] * SIZE
        self.updates = 0
        self.at, self.action = at, action

    def init_policy(self, batch_size):
        return {'memory': [[0.0]] * batch_size}

    def policy(self, carry, obs, mode='train'):
        assert not any(key.startswith('log/') for key in obs)
        assert type(carry['memory']) is list
        assert len(carry['memory']) == len(obs['vector'])
        values = obs['vector'] @ np.array(self.weights)
        values = values + self.rng.normal(size=len(values))
        memory = [
            [0.0] if first else [old[0] + 1.0]
            for first, old in zip(obs['is_first'], carry['memory'], strict=True)
        ]
        acts = {'action': (values > 0).astype(np.int32)}
        outs = {'age': np.array([m[0] for m in memory], np.float32)}
        return {'memory': memory}, acts, outs

    def init_train(self, batch_size):
        return [0] * batch_size

    def train(self, carry, batch):
        assert batch['vector'].shape == (BATCH, LENGTH + CONTEXT, SIZE)
        # The memory counts steps since the episode began, in whatever batch.
        ages = batch['age'][~batch['is_first'].astype(bool)]
        assert (ages > 0).all(), ages
        self.updates += 1
        self.weights = [0.9 * w + 0.1 for w in self.weights]
        if self.updates == self.at:
            self.action()
        return carry, {}, {'updates_seen': self.updates}

    def init_report(self, batch_size):
        return ()

    def report(self, carry, batch):
        return carry, {'error': float(batch['vector'].mean())}

    def stream(self, source):
        return source

    def save(self):
        return {'weights': list(self.weights), 'updates': self.updates}

    def load(self, data, regex=None):
        self.weights, self.updates = list(data['weights']), data['updates']


class Replay:
    """Only `add` and `sample`."""

    def __init__(self, length=LENGTH + CONTEXT, fails_at=None):
        self.length = length
        self.streams = {}
        self.rng = np.random.default_rng(0)
        self.left = fails_at or -1

    def add(self, step, worker=0):
        self.left -= 1
        if not self.left:
            raise ValueError('the list is full')
        assert not any(key.startswith('log/') for key in step)
        copied = {k: np.array(v) for k, v in step.items()}
        self.streams.setdefault(int(worker), []).append(copied)

    def sample(self, batch, mode='train'):
        served = [k for k, v in self.streams.items() if len(v) >= self.length]
        sequences = []
        for _ in range(batch):
            stream = self.streams[self.rng.choice(served)]
            start = self.rng.integers(0, len(stream) - self.length + 1)
            sequences.append(stream[start : start + self.length])
        keys = sequences[0][0].keys()
        return {k: np.array([[x[k] for x in seq] for seq in sequences]) for k in keys}


def make_stream(replay, mode):
    while True:
        yield replay.sample(BATCH, mode)


def make_logger(logdir):
    outputs = [elements.logger.JSONLOutput(logdir, 'metrics.jsonl')]
    return elements.Logger(elements.Counter(), outputs)


class FailingLogger:
    def __init__(self):
        self.step = elements.Counter()

    def add(self, metrics, prefix=None):
        pass

    def write(self):
        raise OSError('no space left')

    def close(self):
        pass


class Knock:
    """Action that tells a waiting test that it happened; with `wait` it never ends."""

    def __init__(self, door, wait=False):
        self.door, self.wait = door, wait

    def __call__(self):
        Path(self.door).write_text(f'{os.getpid()}\n')
        if self.wait:
            threading.Event().wait()


def fail():
    raise ValueError('the loss is negative')


def make_blocking_agent(door):
    Knock(door, wait=True)()
