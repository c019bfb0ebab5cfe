"""Advice of the bottleneck line, with values worked out by hand from the model."""

import pytest

from embodied.logging.bottleneck import find_bottleneck
from embodied.logging.bottleneck.advice import NEEDED, more_environments, more_rows

# 16 environments take 20 ms for a step and wait 12 ms, so they take 500 steps/s. With a
# wait of 0.6 of the time the learner can make 1 / 0.4 = 2.5 times as many updates.
BASE = {
    'learner/wait': 0.6,
    'fps/train': 12.0,
    'actor/envs': 16.0,
    'actor/steps_per_second': 500.0,
    'actor/policy_ms': 4.0,
    'actor/batch_rows': 8.0,
    'actor/batch_fill': 0.5,
    'usage/envs/workers': 4.0,
    'usage/envs/cpu_cores': 2.0,
    'usage/envs/idle_cores': 10.0,
    'usage/envs/step_ms': 20.0,
}
ENVIRONMENTS = {
    # 2.5 * 16 environments, 2.5 * 12 updates/s.
    'as many as the learner needs': (
        {},
        'run.envs=40 (now 16) should give 30 updates/s (now 12)',
    ),
    # One idle core beside two: 1.5 times.
    'as many as the cores allow': (
        {'usage/envs/idle_cores': 1.0},
        'run.envs=24 (now 16) should give 18 updates/s (now 12); look again then',
    ),
    # 2.5 * 7.8 cores are needed, 7.8 + 0.2 are there: 11.5 are missing.
    'no core is idle': (
        {'usage/envs/cpu_cores': 7.8, 'usage/envs/idle_cores': 0.2},
        'environments use 7.8 cores and 0.2 are idle: faster environments, or 12 cores '
        'more, will help',
    ),
    # 1.5 * 2 cores are needed, 0.1 of the third is idle.
    'one core is missing': (
        {'learner/wait': 1 / 3, 'usage/envs/idle_cores': 0.1},
        'environments use 2.0 cores and 0.1 are idle: faster environments, or 1 core '
        'more, will help',
    ),
    # 2.5 * 3.6 cores at 0.8 of a core each are 12 workers: one environment each.
    'threads share a core': (
        {'usage/envs/cpu_cores': 3.6},
        'workers are busy; run.envs_per_worker=1 (now 4) should give 30 updates/s '
        '(now 12)',
    ),
    # 1.25 * 3.2 / 0.8 = 5 workers for 16 environments.
    'threads share a core, a bit': (
        {'usage/envs/cpu_cores': 3.2, 'learner/wait': 0.2},
        'workers are busy; run.envs_per_worker=3 (now 4) should give 15 updates/s '
        '(now 12)',
    ),
    # Each has a worker already, so more of both.
    'a worker for each': (
        {'usage/envs/workers': 16.0, 'usage/envs/cpu_cores': 14.0}
        | {'usage/envs/idle_cores': 50.0},
        'run.envs=40 (now 16) should give 30 updates/s (now 12)',
    ),
    # Simulators that sleep, or run elsewhere, use no CPU time here.
    'no CPU time': (
        {'usage/envs/cpu_cores': 0.0, 'usage/envs/idle_cores': 0.0},
        'run.envs=40 (now 16) should give 30 updates/s (now 12)',
    ),
    # 10 environments in a step use 0.06 cores, and (0.06 + 0.5) / 0.06 is plenty.
    'little CPU time on a busy machine': (
        {'usage/envs/cpu_cores': 0.06, 'usage/envs/idle_cores': 0.0},
        'run.envs=40 (now 16) should give 30 updates/s (now 12)',
    ),
    # 0.95 would be 20 times.
    'no further than eight times': (
        {'learner/wait': 0.95, 'usage/envs/idle_cores': 100.0},
        'run.envs=128 (now 16) should give 96 updates/s (now 12)',
    ),
    # Calls of 4 rows at most in 4 ms are 1000 steps/s, twice as many as now.
    'calls are small': (
        {'actor/batch_rows': 4.0, 'actor/batch_fill': 1.0},
        'run.envs=32 (now 16) should give 24 updates/s (now 12); look again then',
    ),
}
# Calls of 20 ms for 8 rows: 400 steps/s, the policy works all the time.
POLICY = BASE | {'actor/steps_per_second': 400.0, 'actor/policy_ms': 20.0}
ROWS = {
    'more environments per call': (
        {},
        'run.envs=40 (now 16) should give 30 updates/s (now 12)',
    ),
    # 4 rows in 20 ms are 200 steps/s, and 400 are wanted: 16 in 20 + 20 ms.
    'larger calls': (
        {'actor/batch_rows': 4.0, 'actor/batch_fill': 1.0, 'learner/wait': 0.5}
        | {'actor/steps_per_second': 200.0},
        'run.actor_batch=-1 (now 4) should give 24 updates/s (now 12)',
    ),
    # 500 steps/s are wanted, in rounds of 20 + 60 ms.
    'larger calls and more environments': (
        {'actor/batch_rows': 4.0, 'actor/batch_fill': 1.0, 'usage/envs/step_ms': 60.0}
        | {'actor/steps_per_second': 200.0},
        'run.actor_batch=-1 (now 4) and run.envs=40 (now 16) should give 30 updates/s '
        '(now 12)',
    ),
}


@pytest.mark.parametrize('case', ENVIRONMENTS)
def test_slow_environments_are_to_be_more_or_apart(case):
    changes, words = ENVIRONMENTS[case]
    assert more_environments(BASE | changes) == words


@pytest.mark.parametrize('case', ROWS)
def test_slow_policy_calls_are_to_have_more_rows(case):
    changes, words = ROWS[case]
    assert more_rows(POLICY | changes) == words


@pytest.mark.parametrize('name', NEEDED)
def test_nothing_is_computed_from_less_than_all_figures(name):
    rest = {k: v for k, v in BASE.items() if k != name}
    assert more_environments(rest) == more_rows(rest) == ''


def test_a_learner_whose_device_is_busy_meanwhile_does_not_wait():
    """As on a CPU, where the learner fetches a batch while an update is computed."""
    waits = {'replay/fill': 1.0, 'replay/sample_wait': 0.9, 'learner/idle': 0.02}
    line = find_bottleneck(BASE | waits)
    assert str(line) == 'balanced: learner busy 98%; environments wait 0% of the time'
    # Half of the time is idle, so twice the rate is possible.
    words = more_environments(BASE | {'learner/idle': 0.5})
    assert words == 'run.envs=32 (now 16) should give 24 updates/s (now 12)'


@pytest.mark.parametrize('value', [-1.0, 0.0, 1e300])
@pytest.mark.parametrize('name', NEEDED)
def test_figures_that_cannot_be_true_do_no_harm(name, value):
    """The dashboard reads files that anything may have written."""
    for give in (more_environments, more_rows):
        words = give(BASE | {name: value})
        assert words == '' or value == 0.0


def test_the_line_about_the_bottleneck_ends_with_the_advice():
    waits = {'replay/fill': 1.0, 'replay/sample_wait': 0.55}
    line = find_bottleneck(BASE | waits | {'actor/calls_per_second': 60.0})
    assert str(line) == (
        'environment-bound: the learner waits 60% of the time for experience; policy '
        'calls take 24%; run.envs=40 (now 16) should give 30 updates/s (now 12)'
    )
    line = find_bottleneck(POLICY | waits | {'actor/calls_per_second': 50.0})
    assert str(line) == (
        'policy-bound: the learner waits 60% of the time for experience; policy calls '
        'take 100%; run.envs=40 (now 16) should give 30 updates/s (now 12)'
    )
