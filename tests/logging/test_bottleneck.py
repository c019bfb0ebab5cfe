import pytest

from embodied.logging.bottleneck import find_bottleneck

# learner/wait, replay/insert_wait, replay/sample_wait, policy_ms, calls_per_second
DISTRIBUTED = {
    'learner-bound': [
        (0.04, 0.41, 0.0, 5, 20),
        (0.0, 0.11, 0.0, 50, 20),
        (0.19, 0.9, 0.19, 1, 1),
    ],
    'balanced': [(0.04, 0.05, 0.02, 5, 20), (0.15, 0.0, 0.1, 40, 20)],
    'environment-bound': [(0.6, 0.0, 0.55, 5, 20), (0.9, 0.0, 0.5, 20, 24)],
    'policy-bound': [(0.6, 0.0, 0.55, 25, 30), (0.9, 0.0, 0.9, 100, 30)],
    'replay-bound': [(0.6, 0.0, 0.1, 5, 20), (0.5, 0.3, 0.24, 50, 20)],
}
NAMES = ('learner/wait', 'replay/insert_wait', 'replay/sample_wait')
NAMES += ('actor/policy_ms', 'actor/calls_per_second')


@pytest.mark.parametrize(
    ('name', 'values'),
    [(name, values) for name, table in DISTRIBUTED.items() for values in table],
)
def test_waits_name_the_part_that_holds_up_the_others(name, values):
    metrics = dict(zip(NAMES, values, strict=True))
    assert find_bottleneck(metrics | {'replay/fill': 1.0}).name == name


@pytest.mark.parametrize(
    ('metrics', 'text'),
    [
        (
            {'learner/wait': 0.04, 'replay/insert_wait': 0.41},
            'learner-bound: learner busy 96%; environments wait 41% of the time; more '
            'environments will not help',
        ),
        (
            {'replay/fill': 0.25, 'learner/wait': 1.0, 'replay/sample_wait': 1.0},
            'filling replay: 25% of the steps that training waits for',
        ),
        (
            {
                'learner/wait': 0.7,
                'replay/sample_wait': 0.6,
                'actor/policy_ms': 4.0,
                'actor/calls_per_second': 30.0,
            },
            'environment-bound: the learner waits 70% of the time for experience; '
            'policy calls take 12%; more or faster environments will help',
        ),
        (
            {'learner/wait': 0.04, 'learner/reports': 0.12, 'learner/saves': 0.01},
            'report-bound: reports hold training up 12% of the time; a larger '
            'run.report_every will help',
        ),
        (
            {'loop/envs': 0.2, 'loop/reports': 0.1, 'loop/saves': 0.3},
            'save-bound: saves hold training up 30% of the time; a larger '
            'run.save_every will help',
        ),
        (
            {'loop/envs': 0.2},
            'agent-bound: the agent takes 80% of the time, environments 20%; faster '
            'environments will not help',
        ),
        (
            {'loop/envs': 0.75},
            'environment-bound: the agent takes 25% of the time, environments 75%; '
            '`dreamer parallel` overlaps the two, for up to 1.3 times the speed',
        ),
    ],
)
def test_reason_has_the_figures_and_what_would_help(metrics, text):
    assert str(find_bottleneck(metrics)) == text


def test_nothing_is_said_when_nothing_is_known():
    assert find_bottleneck({'fps/env': 100.0}) is None
