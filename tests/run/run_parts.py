"""Parts for the loops, written against the contracts and nothing else.

None of them inherits from embodied: foreign classes have to work.
"""

from pathlib import Path

import elements
import numpy as np

FOLDER = Path(__file__).parent
SIZE = 3  # entries of the observed vector
ARGS = {  # what differs from the defaults
    'steps': 200,
    'train_ratio': 4.0,
    'envs': 2,
    'eval_envs': 2,
    'eval_eps': 2,
    'batch_size': 3,
    'batch_length': 4,
    'report_length': 4,
    'log_every': 0.0,
    'report_every': 0.0,
    'report_batches': 2,
    'save_every': 0.0,
    'debug': True,
}


def make_args(logdir, **changes):
    return elements.Config({**ARGS, 'logdir': str(logdir), **changes})


class Env:
    """Rewards following the sign of the first entry; episodes end at random."""

    obs_space = {
        'vector': elements.Space(np.float32, (SIZE,)),
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

    def __init__(self, index, before_step=None):
        self.rng = np.random.default_rng(index)
        self.vector = np.zeros(SIZE, np.float32)
        self.before_step = before_step or (lambda: None)
        self.total = 0

    def step(self, action):
        self.before_step()
        self.total += 1
        first = bool(action['reset'])
        reward = 0.0 if first else float(action['action'] == (self.vector[0] > 0))
        self.vector = self.rng.normal(size=SIZE).astype(np.float32)
        last = not first and self.rng.uniform() < 0.2
        return {
            'vector': self.vector,
            'reward': np.float32(reward),
            'is_first': first,
            'is_last': last,
            'is_terminal': last,
            'log/visits': np.float32(self.total),
        }

    def close(self):
        pass


class SaveableEnv(Env):
    def save(self):
        return self.rng.bit_generator.state, self.vector.copy(), self.total

    def load(self, data):
        self.rng.bit_generator.state, self.vector, self.total = data


class Agent:
    """Depends on the order and content of everything it ever sees.

    The policy carry is a Python list, latents come back one update late, `stream`
    returns its argument.
    """

    def __init__(self, ahead=0):
        self.rng = np.random.default_rng(7)
        self.report_rng = np.random.default_rng(8)
        self.weights = np.zeros(SIZE)
        self.unsent = {}
        self.trained = []
        self.reports = 0
        self.modes = set()
        self.loaded = None
        self.ahead = ahead

    def init_policy(self, batch_size):
        return [0.0] * batch_size

    def policy(self, carry, obs, mode='train'):
        self.modes.add(mode)
        assert 'log/visits' not in obs
        values = obs['vector'] @ self.weights + np.tanh(carry)
        noise = self.rng.normal(size=len(carry))
        carry = [
            0.0 if f else float(v) for f, v in zip(obs['is_first'], values, strict=True)
        ]
        acts = {'action': (values + noise > 0).astype(np.int32)}
        return carry, acts, {'latent': values.astype(np.float32)}

    def init_train(self, batch_size):
        return np.zeros(batch_size)

    def train(self, carry, batch):
        vector, latent = batch['vector'], batch['latent']
        carry = 0.5 * carry + vector.mean((1, 2)) + latent[:, 0]
        change = (vector * (batch['reward'] + carry[:, None])[..., None]).mean((0, 1))
        self.weights = 0.99 * self.weights + 0.1 * change
        self.trained.append(float(vector.sum()))
        outs, self.unsent = self.unsent, {}
        if 'stepid' in batch:
            latent = (0.9 * latent + self.weights.sum()).astype(np.float32)
            self.unsent = {'replay': {'stepid': batch['stepid'], 'latent': latent}}
        return carry, outs, {'weight': self.weights[0]}

    def init_report(self, batch_size):
        return ()

    def report(self, carry, batch):
        self.reports += 1
        assert batch['vector'].shape == (ARGS['batch_size'], 5, SIZE)
        noise = self.report_rng.normal()
        image = np.zeros((4, 4, 3), np.uint8)
        return carry, {'error': batch['vector'].mean() + noise, 'image': image}

    def stream(self, source):
        return source if not self.ahead else look_ahead(source, self.ahead)

    def save(self):
        return {
            'weights': self.weights.copy(),
            'rng': self.rng.bit_generator.state,
            'unsent': self.unsent,
        }

    def load(self, data, regex=None):
        self.loaded = regex or 'everything'
        self.weights = data['weights'].copy()
        if regex is None:
            self.rng.bit_generator.state = data['rng']
            self.unsent = data['unsent']


def look_ahead(source, amount):
    """Like an agent that transfers batches before they are needed."""
    ready = []
    for batch in source:
        ready.append(batch)
        if len(ready) > amount:
            yield ready.pop(0)


class PlainReplay:
    """Only add and sample: one list per worker."""

    def __init__(self, length=5):
        self.length = length
        self.streams = {}
        self.rngs = {x: np.random.default_rng(i) for i, x in enumerate(MODES)}

    def add(self, step, worker=0):
        assert not any(key.startswith('log/') for key in step)
        stream = self.streams.setdefault(int(worker), [])
        stepid = np.zeros(20, np.uint8)
        stepid[:8] = np.frombuffer(np.int64(len(stream)).tobytes(), np.uint8)
        stepid[8] = worker
        copied = {k: np.array(v) for k, v in step.items()}
        stream.append({**copied, 'stepid': stepid})

    def sample(self, batch, mode='train'):
        sequences = []
        served = [k for k, v in sorted(self.streams.items()) if len(v) >= self.length]
        for _ in range(batch):
            worker = self.rngs[mode].choice(served)
            stream = self.streams[worker]
            start = self.rngs[mode].integers(0, len(stream) - self.length + 1)
            sequences.append(stream[start : start + self.length])
        keys = sequences[0][0].keys()
        return {k: np.array([[x[k] for x in seq] for seq in sequences]) for k in keys}


MODES = ('train', 'report', 'eval')


class SaveableReplay(PlainReplay):
    """The same with latents that can be updated and content that can be saved."""

    def update(self, data):
        for stepid, latent in zip(
            data['stepid'].reshape(-1, 20), data['latent'].reshape(-1), strict=True
        ):
            index = int(np.frombuffer(stepid[:8].tobytes(), np.int64)[0])
            self.streams[stepid[8]][index]['latent'] = latent

    def save(self):
        states = {k: v.bit_generator.state for k, v in self.rngs.items()}
        return {'streams': self.streams, 'rngs': states}

    def load(self, data):
        self.streams = data['streams']
        for name, state in data['rngs'].items():
            self.rngs[name].bit_generator.state = state


class Stream:
    """Batches straight from a replay, without a position of its own."""

    def __init__(self, replay, mode):
        self.replay, self.mode = replay, mode

    def __iter__(self):
        return self

    def __next__(self):
        return self.replay.sample(ARGS['batch_size'], self.mode)


def make_logger(entries=None):
    """A logger of the elements package that keeps what is written in a list."""
    entries = entries if entries is not None else []
    return elements.Logger(elements.Counter(), [entries.extend])


class Once:
    """Calls `action` at the given call and never again."""

    def __init__(self, at, action):
        self.left = at
        self.action = action

    def __call__(self):
        self.left -= 1
        if self.left == 0:
            self.action()
