"""Bottleneck: which part holds a run up, from the waits that its parts measured, and
what to change."""

from collections.abc import Mapping
from typing import NamedTuple

from . import advice

__all__ = ['METRICS', 'WINDOW', 'Bottleneck', 'find_bottleneck', 'window_of']

BUSY = 0.8  # share of time from which a part counts as always busy
IDLE = 0.1  # share of time up to which a wait does not matter
MOST = 0.5  # share from which something is the larger part

FILL = 'replay/fill'
WINDOW = 6  # newest values that are averaged

# What the verdict is made from; see docs/metrics.md.
METRICS = (
    'learner/wait',
    'learner/idle',
    'learner/reports',
    'learner/saves',
    FILL,
    'replay/insert_wait',
    'replay/sample_wait',
    'actor/calls_per_second',
    'loop/envs',
    'loop/reports',
    'loop/saves',
    *(name for name in advice.NEEDED if name != 'learner/wait'),
)


class Bottleneck(NamedTuple):
    """`name` in a word; `reason` with the figures and what would help or not."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f'{self.name}: {self.reason}'


def window_of(name: str) -> int:
    """How many of the newest values of a metric count."""
    return 1 if name == FILL else WINDOW


def find_bottleneck(metrics: Mapping[str, float]) -> Bottleneck | None:
    """None if too little is known. All figures are of the same stretch of time."""
    if metrics.get(FILL, 1.0) < 1:
        return Bottleneck(
            'filling replay',
            f'{metrics[FILL]:.0%} of the steps that training waits for',
        )
    for name in ('report', 'save'):
        share = metrics.get(f'learner/{name}s', metrics.get(f'loop/{name}s', 0.0))
        if share > IDLE:
            return Bottleneck(
                f'{name}-bound',
                f'{name}s hold training up {share:.0%} of the time; a larger '
                f'run.{name}_every will help',
            )
    if 'learner/wait' in metrics:
        return _distributed(metrics)
    if 'loop/envs' in metrics:
        return _in_one_process(metrics['loop/envs'])
    return None


def _distributed(metrics: Mapping[str, float]) -> Bottleneck:
    wait = advice.learner_wait(metrics)
    acting_waits = metrics.get('replay/insert_wait', 0.0)
    if wait <= 1 - BUSY:
        busy = f'learner busy {1 - wait:.0%}'
        envs = f'environments wait {acting_waits:.0%} of the time'
        if acting_waits <= IDLE:
            return Bottleneck('balanced', f'{busy}; {envs}')
        return Bottleneck(
            'learner-bound', f'{busy}; {envs}; more environments will not help'
        )
    if metrics.get('replay/sample_wait', 0.0) >= MOST * wait:
        return _acting(wait, metrics)
    return Bottleneck(
        'replay-bound',
        f'the learner waits {wait:.0%} of the time for batches that the train ratio '
        'allows; faster storage, or more run.prefetch, may help',
    )


def _acting(wait: float, metrics: Mapping[str, float]) -> Bottleneck:
    """The learner waits for experience."""
    calls = metrics.get('actor/calls_per_second', 0.0)
    policy = min(1.0, calls * metrics.get('actor/policy_ms', 0.0) / 1000)
    waits = f'the learner waits {wait:.0%} of the time for experience'
    share = f'policy calls take {policy:.0%}'
    if policy >= MOST:
        change = advice.more_rows(metrics) or 'more environments per call will help'
        return Bottleneck('policy-bound', f'{waits}; {share}; {change}')
    change = advice.more_environments(metrics)
    change = change or 'more or faster environments will help'
    return Bottleneck('environment-bound', f'{waits}; {share}; {change}')


def _in_one_process(envs: float) -> Bottleneck:
    shares = f'the agent takes {1 - envs:.0%} of the time, environments {envs:.0%}'
    if envs >= MOST:
        most = 1 / envs  # as if the agent took no time
        return Bottleneck(
            'environment-bound',
            f'{shares}; `dreamer parallel` overlaps the two, for up to {most:.1f} '
            'times the speed',
        )
    return Bottleneck('agent-bound', f'{shares}; faster environments will not help')
