"""Advice: what to change, and by how much, when the learner waits for environments.

The model: N environments go round. Each takes a step (Z seconds) and then waits for its
action (R seconds: policy call, other rows, transport). By Little's law they take

    X = N / (Z + R)    steps per second.

The train ratio ties updates to steps. So a learner that waits the share w of its time
for experience, while its device has nothing to do either, makes 1 / (1 - w) times as
many updates if X grows by that factor. R stays as it is when environments are added,
so X grows as N does, up to three limits:

    calls      One policy call at a time, of b rows in S seconds: X <= b / S. A call
               serves all rows that are ready, so b grows with N, up to run.actor_batch.
    cores      Workers use C cores, and their machines have I idle ones. The CPU time of
               a step stays the same: X grows by (C + I) / C at most. Environments
               that wait themselves, in X Z steps at a time with C far below that, need
               so little that a busy machine has it, too.
    workers    The environments of one worker are threads that share a core (GIL), so
               W workers with C close to W have to be more, each with fewer of them.

If policy calls take the time, X = b / S, which grows with the rows of a call: with N if
a call may serve all, and otherwise after run.actor_batch is raised, when all go round
together in Z + S. S is taken to be the same for more rows, as it is on a GPU as long as
calls are small.
"""

import math
from collections.abc import Mapping

__all__ = ['NEEDED', 'learner_wait', 'more_environments', 'more_rows']

# Metrics that the model is made from.
NEEDED = (
    'learner/wait',
    'fps/train',
    'actor/envs',
    'actor/steps_per_second',
    'actor/policy_ms',
    'actor/batch_rows',
    'actor/batch_fill',
    'usage/envs/workers',
    'usage/envs/cpu_cores',
    'usage/envs/idle_cores',
    'usage/envs/step_ms',
)

MOVING = (
    'fps/train',
    'actor/envs',
    'actor/steps_per_second',
    'actor/policy_ms',
    'usage/envs/workers',
)
LARGEST = 1e9  # of any figure
FARTHEST = 8.0  # times the present rate; the model is not trusted any further
LITTLE = 1.1  # times the present rate; less is not worth a change
FULL = 0.8  # of a core, from which a worker is as fast as it can be
LAZY = 0.1  # of a core per environment in a step, below which it mostly waits itself
SPARE = 0.5  # cores that environments which wait find on any machine
CLOSE = 0.9  # share of the environments from which a call may serve all of them

Metrics = Mapping[str, float]


def learner_wait(metrics: Metrics) -> float:
    """Share of the time that more experience could save, as far as is known."""
    return metrics.get('learner/idle', metrics['learner/wait'])


def more_environments(metrics: Metrics) -> str:
    """What to change where environments take the time; '' if too little is known."""
    if not _known(metrics):
        return ''
    wanted, possible = _wanted(metrics), _cores_allow(metrics)
    if possible < LITTLE:
        return _more_cores(metrics, wanted)
    envs, workers = metrics['actor/envs'], metrics['usage/envs/workers']
    cores, factor = metrics['usage/envs/cpu_cores'], min(wanted, possible)
    if envs > workers and cores >= FULL * workers:
        each = max(1, math.floor(envs / math.ceil(factor * cores / FULL)))
        change = _change('run.envs_per_worker', envs / workers, each)
        return f'workers are busy; {change} {_gain(metrics, factor)}'
    limit = _rows_limit(metrics) / metrics['actor/policy_ms'] * 1000
    factor = min(factor, limit / metrics['actor/steps_per_second'])
    change = _change('run.envs', envs, _whole(factor * envs))
    return f'{change} {_gain(metrics, factor)}'


def more_rows(metrics: Metrics) -> str:
    """What to change where policy calls take the time; '' if too little is known."""
    if not _known(metrics):
        return ''
    wanted, possible = _wanted(metrics), _cores_allow(metrics)
    if possible < LITTLE:
        return _more_cores(metrics, wanted)
    envs, limit = metrics['actor/envs'], _rows_limit(metrics)
    factor = min(wanted, possible)
    changes, needed = [], factor * envs
    if limit < envs:
        changes = [_change('run.actor_batch', limit, -1)]
        seconds = (metrics['usage/envs/step_ms'] + metrics['actor/policy_ms']) / 1000
        needed = factor * metrics['actor/steps_per_second'] * seconds
    if _whole(needed) > envs:
        changes.append(_change('run.envs', envs, _whole(needed)))
    return f'{" and ".join(changes)} {_gain(metrics, factor)}'


def _known(metrics: Metrics) -> bool:
    """Whether all figures are there and may be true: anything may have written them."""
    return all(0 <= metrics.get(x, -1) < LARGEST for x in NEEDED) and all(
        # What stands still, as at the very beginning, has no rates to start from.
        metrics[x] > 0
        for x in MOVING
    )


def _wanted(metrics: Metrics) -> float:
    """The factor on the rate of steps with which the learner would not wait."""
    return 1 / max(1 / FARTHEST, 1 - learner_wait(metrics))


def _cores_allow(metrics: Metrics) -> float:
    """The factor on the rate of steps with which no core is idle."""
    cores, idle = metrics['usage/envs/cpu_cores'], metrics['usage/envs/idle_cores']
    stepping = metrics['actor/steps_per_second'] * metrics['usage/envs/step_ms'] / 1000
    if cores < LAZY * stepping:
        idle = max(idle, SPARE)
    return (cores + idle) / cores if cores else math.inf


def _rows_limit(metrics: Metrics) -> float:
    """Rows that a policy call may have; infinite if all environments fit into one."""
    fill, envs = metrics['actor/batch_fill'], metrics['actor/envs']
    limit = metrics['actor/batch_rows'] / fill if fill else math.inf
    return limit if limit < CLOSE * envs else math.inf


def _more_cores(metrics: Metrics, wanted: float) -> str:
    cores, idle = metrics['usage/envs/cpu_cores'], metrics['usage/envs/idle_cores']
    missing = math.ceil((wanted - 1) * cores - idle)
    return (
        f'environments use {cores:.1f} cores and {idle:.1f} are idle: faster '
        f'environments, or {missing} core{"s" * (missing > 1)} more, will help'
    )


def _whole(number: float) -> int:
    """Rounded up, but not because of the last digits."""
    return math.ceil(round(number, 6))


def _change(option: str, now: float, then: float) -> str:
    return f'{option}={then:.0f} (now {now:.0f})'


def _gain(metrics: Metrics, factor: float) -> str:
    now = metrics['fps/train']
    short = '' if factor == _wanted(metrics) else '; look again then'
    return f'should give {now * factor:.3g} updates/s (now {now:.3g}){short}'
