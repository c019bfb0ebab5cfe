"""Checker: plays an environment for a while and reports what would break training."""

import contextlib
import pickle
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from ...core import manual
from ...core.errors import SpaceError
from ...core.random_agent import RandomAgent
from ..vector.rows import members_of
from ..vector.wrappers import on_host
from ..wrappers import UnifyDtypes, Wrapper
from . import member_trial, twins
from .faults import CHECKS, Finding, Speed, Step, static_findings, unrepeatable

__all__ = ['Report', 'check']

COMPARED = 200  # steps that must be equal under equal seeds
REQUIRED = ('reward', 'is_first', 'is_last', 'is_terminal')


class Report(NamedTuple):
    """`findings` in the order of their severity; `facts` are for information."""

    findings: list[Finding]
    facts: dict[str, str]


def check(
    make: Callable[[int], Any],
    steps: int = 2000,
    seconds: float = 20.0,
    resized: bool = True,
) -> Report:
    """Plays `make(seed)` with random actions for so many steps, or seconds.

    resized: training gives the images another size. A vector environment takes so many
    steps with all of its members together.
    """
    findings = list(_pickling(make))
    facts: dict[str, str] = {}
    try:
        with contextlib.closing(_prepare(make(0))) as env:
            is_vector = bool(members_of(env))
            findings += _common_keys(env)
            is_complete = not findings
            if is_complete:
                findings += static_findings(env.obs_space, env.act_space, resized)
                look = member_trial.trial if is_vector else _trial
                findings += look(env, steps, seconds, facts)
        if is_complete and is_vector:
            is_sound = all(finding.severity == 'warning' for finding in findings)
            twin = lambda seed: _prepare(make(seed))
            findings += twins.compare(twin, steps, seconds / 2, is_sound)
        elif is_complete:
            findings += _repeat(make, steps, seconds / 2)
    except SpaceError as error:
        fix = 'Training would stop with this message.'
        findings.append(Finding('error', str(error), fix))
    except Exception as error:  # noqa: BLE001, an error of the environment is a finding
        findings.append(_crash(error))
    order = {'error': 0, 'warning': 1}
    return Report(sorted(findings, key=lambda f: order[f.severity]), facts)


class _Readable(Wrapper):
    """Refuses results that cannot be looked at."""

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = self.env.step(action)
        if not isinstance(obs, Mapping):
            raise SpaceError(f'step() returned a {type(obs).__name__}, not a dict.')
        missing = [key for key in REQUIRED if key not in obs]
        if missing:
            raise SpaceError(f'step() returned no {", ".join(missing)}.')
        return dict(obs)


def _prepare(env: Any) -> UnifyDtypes:
    return UnifyDtypes(_Readable(on_host(env)))


def _trial(
    env: Any, steps: int, seconds: float, facts: dict[str, str]
) -> Iterator[Finding]:
    """Random play under the eyes of all checks."""
    speed = Speed(env.obs_space)
    checks = [*(kind(env.obs_space) for kind in CHECKS), speed]
    lengths: list[int] = []
    scores: list[float] = []
    length, score, spent = 0, 0.0, [0.0, 0.0]
    for step in _play(env, steps, seconds):
        for watcher in checks:
            watcher.see(step)
        first = bool(step.obs['is_first'])
        spent[first] += step.seconds
        length, score = (0, 0.0) if first else (length + 1, score)
        score += float(np.sum(step.obs['reward']))
        if step.obs['is_last']:
            lengths.append(length)
            scores.append(score)
    facts['speed'] = (
        f'{speed.rate:.0f} steps/s, {speed.slow_share:.0%} slow steps, '
        f'{spent[1] / max(sum(spent), 1e-9):.0%} of the time in resets'
    )
    if lengths:
        facts['episodes'] = (
            f'{len(lengths)} of {min(lengths)} to {max(lengths)} steps, scores of '
            f'random play {min(scores):g} to {max(scores):g}'
        )
    else:
        facts['episodes'] = f'none ended; the last one had {length} steps'
    for watcher in checks:
        yield from watcher.findings()


def _play(env: Any, steps: int, seconds: float, seed: int = 0) -> Iterator[Step]:
    """Steps of random play; every episode is begun by a reset."""
    actions = {k: v for k, v in env.act_space.items() if k != 'reset'}
    agent = RandomAgent(env.obs_space, actions, seed)
    reset = True
    deadline = time.monotonic() + seconds
    for _ in range(steps):
        _, acts, _ = agent.policy((), {'is_first': np.zeros(1)})
        action = {**{k: v[0] for k, v in acts.items()}, 'reset': reset}
        begin = time.perf_counter()
        obs = env.step(action)
        took = time.perf_counter() - begin
        yield Step(reset, obs, took)
        reset = bool(obs['is_last'])
        if time.monotonic() > deadline:
            return


def _repeat(make: Callable[[int], Any], steps: int, seconds: float) -> list[Finding]:
    """Plays the same actions in two environments with the same seed."""
    pair = [_prepare(make(1)), _prepare(make(1))]
    limit = min(steps, COMPARED)
    try:
        plays = [_play(env, limit, seconds) for env in pair]
        for number, (one, two) in enumerate(zip(*plays, strict=False)):
            keys = [
                key
                for key, value in one.obs.items()
                if not _equal(value, two.obs.get(key))
            ]
            if keys:
                return [unrepeatable(keys, number)]
    finally:
        for env in pair:
            env.close()
    return []


def _equal(one: Any, two: Any) -> bool:
    one, two = np.asarray(one), np.asarray(two)
    return one.dtype == two.dtype and np.array_equal(
        one, two, equal_nan=one.dtype.kind == 'f'
    )


def _pickling(make: Callable[[int], Any]) -> Iterator[Finding]:
    """Factories travel to the processes of the environments."""
    try:
        pickle.loads(cloudpickle.dumps(make))
    except Exception as error:  # noqa: BLE001, pickling runs code of any object
        yield Finding(
            'error',
            f'The factory cannot be sent to other processes: {error}',
            'Create files, locks, windows and connections inside of it.',
        )


def _common_keys(env: Any) -> Iterator[Finding]:
    missing = sorted(set(REQUIRED) - env.obs_space.keys())
    missing += [] if 'reset' in env.act_space else ['reset (action)']
    if missing:
        yield Finding(
            'error',
            f'The spaces lack {", ".join(missing)}.',
            'Every environment has reward, is_first, is_last and is_terminal among its '
            'observations and reset among its actions: '
            f'{manual.page("your_environment.md")}.',
        )


def _crash(error: Exception) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    place = f'{frames[-1].filename}:{frames[-1].lineno}' if frames else '?'
    what = f'{type(error).__name__}: {error}'
    return Finding('error', f'It raises {what} ({place})', 'See its traceback there.')
