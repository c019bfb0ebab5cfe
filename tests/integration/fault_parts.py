"""Parts of runs that are killed: every transition has a number of its own, replay keeps
an audit of what it has acknowledged, and `audit` compares the two with the store.

    python fault_parts.py LOGDIR [--key value ...]   starts or continues such a run
    ... --role envs | replay                         one of its roles, apart
"""

import functools
import os
import random
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import elements
import numpy as np

from embodied.logging import JsonlOutput, Logger
from embodied.replay import Replay
from embodied.replay.tools.inspection import Inspection
from embodied.run.parallel import combined, parallel_envs, parallel_replay
from embodied.streams import Consec, Stateless

BATCH, LENGTH, CONTEXT = 16, 16, 1
EPISODE = 30  # steps
JITTER = 0.5, 1.5  # of the pace: environments are not ready at the same time
SHAPE = 18, 18, 3  # of images; a batch is large enough to pass through shared memory
AUDIT = 'audit/rows.bin'  # in the logdir
POINT = 'point'  # file that tells that a paused agent is where it should be
ROW = np.dtype([('stream', 'i8'), ('serial', 'i8'), ('number', 'i8')])
COUNT_BITS = 32  # of a transition's number; the others name the environment object
ARGS = {  # what differs from the defaults, and what a flag may change
    'actor_addr': 'localhost:{auto}',
    'replay_addr': 'localhost:{auto}',
    'logger_addr': 'localhost:{auto}',
    'remote_envs': False,
    'remote_replay': False,
    'envs': 4,
    'envs_per_worker': 2,
    'eval_envs': 0,
    'eval_every': 1e4,
    'steps': 1e9,
    'train_ratio': 64.0,
    'batch_size': BATCH,
    'batch_length': LENGTH,
    'report_length': LENGTH,
    'replay_context': CONTEXT,
    'log_every': 0.5,
    'report_every': 0.0,
    'save_every': 1.0,
    'episode_timeout': 60.0,
    'usage': False,
    'first_env': 0,
    'grace': 30.0,
    'max_restarts': 20,
    'keep': 1,
    'role': 'combined',
    'device_steps': 1,
    'pace': 0.0,
    'members': 0,  # of vector environments, whose last rows come beside first ones
    'train_seconds': 0.0,
    'pause': '',  # where the agent waits, see PausedAgent
    'pause_seconds': 0.0,
}


class Env:
    """Episodes of a fixed length; shows the number of each transition.

    pace: seconds that a step takes on average.
    """

    obs_space = {
        'number': elements.Space(np.int64),
        'image': elements.Space(np.uint8, SHAPE),
        'reward': elements.Space(np.float32),
        'is_first': elements.Space(bool),
        'is_last': elements.Space(bool),
        'is_terminal': elements.Space(bool),
    }
    act_space = {
        'action': elements.Space(np.int32, (), 0, 2),
        'reset': elements.Space(bool),
    }

    def __init__(self, pace, index):
        self.pace = pace
        self.random = random.Random(index)
        name = int.from_bytes(os.urandom(8)) >> (COUNT_BITS + 1)
        self.number = name << COUNT_BITS
        self.step_index = 0

    def step(self, action):
        threading.Event().wait(self.pace * self.random.uniform(*JITTER))
        self.step_index = 0 if action['reset'] else self.step_index + 1
        self.number += 1
        last = self.step_index == EPISODE
        return {
            'number': np.int64(self.number),
            'image': np.full(SHAPE, self.number % 251, np.uint8),
            'reward': np.float32(1.0),
            'is_first': np.bool_(action['reset']),
            'is_last': np.bool_(last),
            'is_terminal': np.bool_(False),
        }

    def close(self):
        pass


def make_env(pace, members, index):
    if not members:
        return Env(pace, index)
    from together import Together

    makes = [functools.partial(Env, pace, index + i) for i in range(members)]
    return Together(makes, final=True)


class Agent:
    """Counts its updates and writes latents; a sequence with a hole is an error."""

    def __init__(self, train_seconds=0.0):
        self.updates = 0
        self.train_seconds = train_seconds  # that an update takes

    def init_policy(self, batch_size):
        return np.zeros(batch_size, np.float32)

    def policy(self, carry, obs, mode='train'):
        acts = {'action': np.zeros(len(carry), np.int32)}
        return carry + 1, acts, {'dyn/deter': np.zeros((len(carry), 2), np.float32)}

    def init_train(self, batch_size):
        return np.zeros(batch_size)

    def train(self, carry, batch):
        follows = np.diff(batch['number'], axis=1) == 1
        assert (follows | batch['is_first'][:, 1:]).all(), batch['number']
        assert (batch['image'] == batch['number'][..., None, None, None] % 251).all()
        threading.Event().wait(self.train_seconds)
        self.updates += 1
        latent = np.full((*batch['stepid'].shape[:2], 2), self.updates, np.float32)
        outs = {'replay': {'stepid': batch['stepid'], 'dyn/deter': latent}}
        return carry, outs, {'loss': 1.0}

    def init_report(self, batch_size):
        return ()

    def report(self, carry, batch):
        return carry, {}

    def stream(self, source):
        return source

    def save(self):
        return {'updates': self.updates}

    def load(self, data, regex=None):
        self.updates = data['updates']


class RollingAgent(Agent):
    """Plays environments of its own, `steps` steps at a time, as on a device."""

    def __init__(self, envs, steps):
        super().__init__()
        self.rollout = Shape(envs, steps)
        self._envs = [Env(0.0, index) for index in range(envs)]
        self._reset = [True] * envs

    def roll(self):
        played = [self._step() for _ in range(self.rollout.steps)]
        return Rolled({k: np.stack([x[k] for x in played]) for k in played[0]})

    def _step(self):
        rows = [
            env.step({'action': 0, 'reset': reset})
            for env, reset in zip(self._envs, self._reset, strict=True)
        ]
        self._reset = [row['is_last'] for row in rows]
        trans = {k: np.stack([row[k] for row in rows]) for k in rows[0]}
        _, acts, outs = self.policy(np.zeros(len(rows), np.float32), trans)
        return {**trans, **acts, **outs}


class Shape(NamedTuple):
    num: int
    steps: int


class Rolled(NamedTuple):
    trans: dict

    def fetch(self):
        return self.trans


class PausedAgent(Agent):
    """Says that it has come to some point, and goes on after `seconds`.

    make: in its constructor; compile: in its first update; save: while its second
    save, the first with updates in it, is written.
    """

    def __init__(self, logdir, point, seconds, train_seconds):
        self._logdir, self._point, self._seconds = logdir, point, seconds
        self._saves = 0
        super().__init__(train_seconds)
        self._pause('make')

    def train(self, carry, batch):
        self._pause('compile')
        return super().train(carry, batch)

    def save(self):
        self._saves += 1
        data = super().save()
        if self._saves == 2 and self._point == 'save':
            data['slow'] = Slow(self._pause)
        return data

    def _pause(self, point):
        if point == self._point:
            self._point = ''
            (Path(self._logdir) / POINT).touch()
            threading.Event().wait(self._seconds)


class Slow:
    """Takes its time to be pickled."""

    def __init__(self, pause):
        self.pause = pause

    def __reduce__(self):
        self.pause('save')
        return (str, ())


def audited(replay, logdir):
    """The replay, which writes down every row before anybody hears of it."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    file = os.open(audit_path(logdir), flags, 0o644)
    add_batch = replay.add_batch

    def add_and_note(steps, workers, serials=None):
        add_batch(steps, workers, serials)
        rows = np.zeros(len(workers), ROW)
        rows['stream'], rows['serial'] = workers, serials
        rows['number'] = steps.get('number', 0)
        # One call: a killed process has written all of it or nothing.
        os.write(file, rows.tobytes())

    replay.add_batch = add_and_note
    return replay


def make_replay(logdir):
    replay = Replay(
        length=LENGTH + CONTEXT,
        capacity=1_000_000,
        directory=Path(logdir) / 'replay',
        chunksize=256,
        online=True,
    )
    return audited(replay, logdir)


def make_eval_replay():
    return Replay(LENGTH + CONTEXT, capacity=1000)


def make_stream(replay, mode):
    source = Stateless(replay.sample, BATCH, mode)
    return Consec(source, LENGTH, 1, prefix=CONTEXT, contiguous=True)


def make_logger(logdir):
    return Logger(elements.Counter(), [JsonlOutput(logdir)])


def audit_path(logdir):
    path = Path(logdir) / AUDIT
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


class Audit(NamedTuple):
    """What the store holds against what was acknowledged."""

    acknowledged: int
    stored: int
    lost: int  # acknowledged and not there
    doubled: int  # there twice
    holes: int  # steps missing in the middle of an episode
    streams: int


def acknowledged(logdir):
    """Rows as they were told, some of them twice; empty before the first."""
    path = audit_path(logdir)
    return np.fromfile(path, ROW) if path.exists() else np.zeros(0, ROW)


def audit(logdir):
    """Reads the store back, row by row; the run may still be going on."""
    told = np.unique(acknowledged(logdir))
    content = Inspection(Path(logdir) / 'replay')
    parts, holes, streams = [], 0, 0
    for stream, positions in content.streams():
        rows = np.zeros(len(positions), ROW)
        rows['stream'], rows['serial'] = stream, content.serials(positions)
        if 'number' in content.schema.columns:
            rows['number'] = content.read('number', positions)
        first = content.read('is_first', positions).astype(bool)
        holes += int(((np.diff(rows['serial']) != 1) & ~first[1:]).sum())
        parts.append(rows)
        streams += 1
    stored = np.concatenate(parts) if parts else np.zeros(0, ROW)
    unique = np.unique(stored)
    names = unique['number'][unique['number'] > 0]
    doubled = len(stored) - len(unique) + len(names) - len(np.unique(names))
    lost = len(np.setdiff1d(told, unique))
    return Audit(len(told), len(stored), lost, int(doubled), holes, streams)


def run(logdir, engine=None, **changes):
    """Starts the run, or goes on with it, until it ends."""
    bind = functools.partial
    args = elements.Config({**ARGS, 'logdir': str(logdir), **changes})
    pause = args.pause, args.pause_seconds, args.train_seconds
    make_agent = bind(PausedAgent, logdir, *pause)
    if args.device_steps > 1:
        make_agent = bind(RollingAgent, args.envs, args.device_steps)
    replays = bind(make_replay, logdir), make_eval_replay
    envs = (bind(make_env, args.pace, args.members),) * 2
    log = bind(make_logger, logdir)
    if args.role == 'envs':
        parallel_envs(*envs, args, engine)
    elif args.role == 'replay':
        parallel_replay(*replays, make_stream, args)
    else:
        combined(make_agent, *replays, *envs, make_stream, log, args, engine)


def main():
    logdir, *flags = sys.argv[1:]
    changes = elements.Flags(elements.Config(ARGS)).parse(flags)
    run(logdir, **changes)


if __name__ == '__main__':
    sys.path.append(str(Path(__file__).parents[1]))
    # As a module of its own, so that roles can import what they are given.
    import fault_parts

    fault_parts.main()
