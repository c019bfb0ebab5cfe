"""Environments: steps per second of one task as single and vector environments.

    python bench/environments.py                    CartPole, 256 at once
    python bench/environments.py --task gymnax:CartPole-v1 --device_steps 16
    python bench/environments.py --envs 64 --rounds 3

One JSON line per figure on stdout. The system plays with random actions, through
workers, actor and replay; beside it are the bare loops: of the library, stepping with
ready actions, and of replay, storing ready rows. Each round measures all of them, and
the ratios are those of medians.
"""

import argparse
import contextlib
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import gymnasium
import numpy as np

import embodied
from embodied import envs
from embodied.core.step_keys import without_log
from embodied.logging import read_records

SECONDS = 8.0  # of each measurement
WARMUP = 2.0  # seconds after the first steps of a run
LENGTH = 65  # steps per sequence of the replay
# Shares of 256 members, on two cores.
BARS = {'vector_of_grouped': 3.0, 'vector_of_slower_bare_loop': 0.5}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--task', default='gym:CartPole-v1')
    parser.add_argument('--envs', type=int, default=256)
    parser.add_argument('--workers', type=int, default=1, help='of vector environments')
    parser.add_argument('--device_steps', type=int, default=1)
    parser.add_argument('--seconds', type=float, default=SECONDS)
    parser.add_argument('--rounds', type=int, default=1)
    options = parser.parse_args(argv)
    kinds = choose(options)
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, measure in kinds.items():
            rates[name].append(measure(options))
            tell(name, rates[name][-1], task=options.task, envs=options.envs)
    compare({name: statistics.median(values) for name, values in rates.items()})


def choose(options: argparse.Namespace) -> dict[str, Callable[..., float]]:
    """Figures by name."""
    members = str(options.envs // options.workers)
    vector = ['--run.envs_per_worker', members]
    if not options.task.startswith('gym:'):
        kinds = {'vector': functools.partial(play, flags=vector)}
        if options.device_steps > 1:
            flags = [*vector, '--run.device_steps', str(options.device_steps)]
            flags += ['--configs', 'debug', '--random_agent', 'False']
            kinds['device'] = functools.partial(play, flags=flags)
        return {**kinds, 'bare_vector': step_bare}
    alone = ['--run.envs', '1', '--run.envs_per_worker', '1']
    return {
        'single': functools.partial(play, flags=alone),
        'grouped': functools.partial(play, flags=[]),
        'vector': functools.partial(play, flags=['--env.gym.vector', 'True', *vector]),
        'bare_sync_vector': step_sync,
        'bare_vector': step_bare,
        'bare_add_batch': store,
    }


def compare(rates: dict[str, float]) -> None:
    if 'grouped' not in rates:
        return
    bare = min(rates['bare_sync_vector'], rates['bare_add_batch'])
    ratios = {
        'vector_of_grouped': rates['vector'] / rates['grouped'],
        'vector_of_slower_bare_loop': rates['vector'] / bare,
    }
    for name, ratio in ratios.items():
        tell(name, ratio, bar=BARS[name])


def tell(what: str, value: float, **details: object) -> None:
    line = {'bench': 'environments', 'what': what, 'value': round(value, 2), **details}
    print(json.dumps(line), flush=True)


# Through the system


def play(options: argparse.Namespace, flags: Sequence[str]) -> float:
    """Steps per second that a distributed run commits to replay."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, '-m', 'dreamerv3', 'parallel', '--logdir', folder]
        command += ['--task', options.task, '--run.envs', str(options.envs)]
        command += ['--run.eval_envs', '0', '--random_agent', 'True']
        command += ['--run.train_ratio', '0.001', '--run.log_every', '0.25']
        command += ['--logger.outputs', 'jsonl', '--run.save_every', '0']
        command += ['--run.duration', str(options.seconds + WARMUP), *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        records = read_records(Path(folder) / 'metrics.jsonl')
    points = [(x['time'], x['step']) for x in records if x['step']]
    first = points[0][0] + WARMUP
    inside = [point for point in points if first <= point[0] <= first + options.seconds]
    (begin, before), (end, after) = inside[0], inside[-1]
    return (after - before) / (end - begin)


# Bare loops


def step_sync(options: argparse.Namespace) -> float:
    """The loop of a `SyncVectorEnv`, as in the documentation of Gymnasium."""
    name = options.task.removeprefix('gym:')
    makes = [functools.partial(gymnasium.make, name)] * options.envs
    env = gymnasium.vector.SyncVectorEnv(makes)
    with contextlib.closing(env):
        env.reset(seed=0)
        actions = [env.action_space.sample() for _ in range(16)]
        step = lambda number: env.step(actions[number % 16])
        return repeat(step, options)


def step_bare(options: argparse.Namespace) -> float:
    """Our adapter alone."""
    settings = {'vector': True} if options.task.startswith('gym:') else {}
    env = envs.make(options.task, seed=0, num=options.envs, **settings)
    agent = embodied.RandomAgent(env.obs_space, env.act_space, 0)
    first = {'is_first': np.ones(options.envs, bool)}
    choices = [agent.policy((), first)[1] for _ in range(16)]
    reset = np.ones(options.envs, bool)

    def step(number: int) -> None:
        nonlocal reset
        reset = env.step({**choices[number % 16], 'reset': reset})['is_last']

    with contextlib.closing(env):
        return repeat(step, options)


def store(options: argparse.Namespace) -> float:
    """`replay.add_batch` of one row per environment."""
    env = envs.make(options.task, seed=0)
    spaces = without_log({**env.obs_space, **env.act_space})
    env.close()
    rows = {
        key: np.zeros((options.envs, *space.shape), space.dtype)
        for key, space in spaces.items()
        if key != 'reset'
    }
    streams = np.arange(options.envs)
    with tempfile.TemporaryDirectory() as folder:
        replay = embodied.replay.Replay(LENGTH, 1_000_000, directory=folder)
        add = lambda number: replay.add_batch(rows, streams, streams * 0 + number)
        rate = repeat(add, options)
        replay.close()
    return rate


def repeat(step: Callable[[int], object], options: argparse.Namespace) -> float:
    """Steps of all environments per second."""
    step(0)
    begin, number = time.perf_counter(), 0
    while time.perf_counter() < begin + options.seconds / 2:
        number += 1
        step(number)
    return number * options.envs / (time.perf_counter() - begin)


if __name__ == '__main__':
    main()
