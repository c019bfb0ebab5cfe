"""Parts for tests of actor and environment workers: agents, environments, servers."""

import functools
import threading
from collections import namedtuple

import elements
import numpy as np
from data_parts import DEADLINE
from local_client import LocalClient

from embodied import transport

Pair = namedtuple('Pair', ['left', 'right'])


class CountingAgent:
    """Its action is how many rows of this environment it has seen before.

    The carry holds that count in a form to choose; rows with `is_first` do not reset
    it, so it shows whether each environment has got its own carry, ever.
    """

    def __init__(self, form='list'):
        self.make, self.read = FORMS[form]
        self.calls = []  # (rows, mode) of each policy call
        self.error = None

    def init_policy(self, batch_size):
        return self.make(np.zeros(batch_size, np.int32))

    def policy(self, carry, obs, mode='train'):
        if self.error:
            raise self.error
        assert not any(key.startswith('log/') for key in obs)
        counts = np.asarray(self.read(carry), np.int32)
        assert len(counts) == len(obs['is_first'])
        self.calls.append((len(counts), mode))
        outs = {'latent': 10.0 * counts, 'log/count': counts}
        return self.make(counts + 1), {'action': counts}, outs


class TableAgent:
    """The same with all carries in a table of its own; cannot act without it."""

    def __init__(self):
        self.calls = []

    def init_table(self, rows):
        return np.zeros(rows, np.int32)

    def resize_table(self, table, rows):
        table = table[:rows]
        return np.pad(table, (0, rows - len(table)))

    def policy_rows(self, table, rows, obs, mode='train'):
        self.calls.append((len(rows), mode))
        counts = table[rows]
        table = table.copy()
        table[rows] = counts + 1
        return table, {'action': counts}, {}


FORMS = {  # how to make a carry of counts [n], how to read it
    'list': (lambda x: x.tolist(), lambda carry: _is(list, carry)),
    'array': (np.array, lambda carry: _is(np.ndarray, carry)),
    'list of dicts': (
        lambda x: [{'count': int(n)} for n in x],
        lambda carry: [entry['count'] for entry in _is(list, carry)],
    ),
    'dict': (
        lambda x: {'a': x, 'b': (x.tolist(), ())},
        lambda carry: _is(list, carry['b'][0]) and _is(np.ndarray, carry['a']),
    ),
    'named tuple': (
        lambda x: Pair(np.stack([x, x], 1), ()),
        lambda carry: _is(Pair, carry).left[:, 1],
    ),
}


def _is(kind, value):
    assert isinstance(value, kind), (kind, type(value))
    return value


class Env:
    """Episodes of `length` steps; shows its index, its steps and the last action.

    `hooks` are called before each step with the environment and the action.
    """

    obs_space = {
        'image': elements.Space(np.uint8, (4, 4, 3)),
        'index': elements.Space(np.int32),
        'step': elements.Space(np.int32),
        'done': elements.Space(np.int32),
        'reward': elements.Space(np.float32),
        'is_first': elements.Space(bool),
        'is_last': elements.Space(bool),
        'is_terminal': elements.Space(bool),
        'log/step': elements.Space(np.float32),
    }
    act_space = {
        'action': elements.Space(np.int32, (), 0, 10**6),
        'reset': elements.Space(bool),
    }

    def __init__(self, index, length=3, hook=None):
        self.index, self.length, self.hook = index, length, hook
        self.step_index = 0
        self.closed = False
        self.threads = {threading.current_thread()}

    def step(self, action):
        self.threads.add(threading.current_thread())
        if self.hook:
            self.hook(self, action)
        self.step_index = 0 if action['reset'] else self.step_index + 1
        last = self.step_index == self.length
        return {
            'image': np.full((4, 4, 3), self.step_index, np.uint8),
            'index': np.int32(self.index),
            'step': np.int32(self.step_index),
            'done': np.int32(action['action']),
            'reward': np.float32(not action['reset']),
            'is_first': np.bool_(action['reset']),
            'is_last': np.bool_(last),
            'is_terminal': np.bool_(last),
            'log/step': np.float32(self.step_index),
        }

    def close(self):
        self.threads.add(threading.current_thread())
        self.closed = True


class Sinks:
    """Replay and logger that note what they are sent, behind real servers with `args`.

    Without args there are no sockets: `client` calls their methods in this process.

    Each method answers while its event in `open` is set; `stop_at` is the number of
    steps that end the run.
    """

    def __init__(self, args=None, stop_at=10**9):
        self.rows = {'add_batch': [], 'add_batch_eval': []}
        self.transitions, self.metrics = [], []
        self.stop_at = stop_at
        self.failing = False
        self.change = threading.Condition()
        methods = {
            'replay': {
                name: functools.partial(self._add_batch, name) for name in self.rows
            },
            'logger': {'tran': self._tran, 'add': self._add},
        }
        self.open = {}
        self._methods = {}
        for role, bound in methods.items():
            for name, fn in bound.items():
                self.open[name] = threading.Event()
                self.open[name].set()
                handle = functools.partial(self._handle, name, fn)
                self._methods.setdefault(role, {})[name] = handle
        self._servers = [] if args is None else list(self._serve(args))

    def client(self, role):
        return LocalClient(self._methods[role])

    def _serve(self, args):
        for role, methods in self._methods.items():
            server = transport.Server(
                args[f'{role}_addr'], role, args.get('transport', 'native')
            )
            for name, fn in methods.items():
                server.bind(name, fn)
            server.start(block=False)
            yield server

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for event in self.open.values():
            event.set()
        for server in self._servers:
            server.close()

    @property
    def steps(self):
        return len(self.rows['add_batch'])

    def wait_for(self, condition):
        with self.change:
            assert self.change.wait_for(condition, DEADLINE)

    def _handle(self, name, fn, *args):
        assert self.open[name].wait(DEADLINE)
        with self.change:
            answer = fn(*args)
            self.change.notify_all()
            return answer

    def _add_batch(self, name, steps, streams, serials):
        if self.failing:
            raise ArithmeticError('replay is failing')
        for i, (stream, serial) in enumerate(zip(streams, serials, strict=True)):
            row = {k: v[i] for k, v in steps.items()}
            self.rows[name].append((int(stream), int(serial), row))
        return {'steps': self.steps, 'stop': self.steps >= self.stop_at}

    def _tran(self, transitions, envids, is_eval, steps):
        for i, (envid, flag) in enumerate(zip(envids, is_eval, strict=True)):
            row = {k: v[i] for k, v in transitions.items()}
            self.transitions.append((int(envid), bool(flag), row))

    def _add(self, metrics, prefix, steps):
        self.metrics.append((prefix, metrics, steps))
