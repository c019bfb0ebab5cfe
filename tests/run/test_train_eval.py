"""Training with evaluations: when they happen, what they give, exact resume."""

import signal

import elements
import numpy as np
import pytest
import run_parts as parts

import embodied
from embodied.core.checkpoint import load_part
from embodied.core.errors import ConfigError
from embodied.logging import read_records

COMPARED = (
    'agent',
    'replay',
    'collector',
    'learner',
    'replay_eval',
    'evaluation',
    'schedule',
)


def run(logdir, agent=None, entries=None, before_eval_step=None, **changes):
    agent = agent or parts.Agent()
    embodied.run.train_eval(
        lambda: agent,
        parts.SaveableReplay,
        parts.SaveableReplay,
        parts.SaveableEnv,
        lambda index: parts.SaveableEnv(100 + index, before_eval_step),
        parts.Stream,
        lambda: parts.make_logger(entries),
        parts.make_args(logdir, **{'eval_every': 50, **changes}),
    )
    return agent


def outcome(logdir):
    saved = {name: load_part(logdir, name) for name in COMPARED}
    saved['replay']['content']['rngs'].pop('report')
    saved['replay_eval']['content']['rngs'].pop('eval')
    return elements.tree.map(repr, saved)


def test_evaluations_come_at_the_start_and_once_per_period(tmp_path):
    entries = []
    agent = run(tmp_path, entries=entries, steps=200)
    assert agent.modes == {'train', 'eval'}
    steps = [step for step, name, _ in entries if name == 'eval/score']
    assert steps == [0, 50, 100, 150, 200]
    assert [float(v) for _, k, v in entries if k == 'eval/episodes'] == [4.0] * 5


def test_each_environment_gives_its_first_episodes(tmp_path):
    entries = []
    run(tmp_path, entries=entries, steps=2, eval_envs=3, eval_eps=2)
    lines = [x for x in read_records(tmp_path / 'scores.jsonl') if x['eval']]
    assert sorted(x['env'] for x in lines) == [0, 0, 1, 1, 2, 2]
    means = [float(v) for _, k, v in entries if k == 'eval/score']
    assert means == [np.mean([x['score'] for x in lines])]
    # Each stream of the eval replay begins with the episodes that were counted.
    streams = load_part(tmp_path, 'replay_eval')['content']['streams']
    for worker, stream in streams.items():
        lengths = [x['length'] for x in lines if x['env'] == worker]
        ends = [i for i, x in enumerate(stream) if x['is_last']]
        assert lengths[0] == ends[0]
        assert lengths[1] == ends[1] - ends[0] - 1


def test_evaluation_steps_do_not_count_as_training_steps(tmp_path):
    run(tmp_path, steps=100)
    progress = load_part(tmp_path, 'progress')
    assert (progress['steps'], progress['updates']) == (100, 28)
    streams = load_part(tmp_path, 'replay')['content']['streams']
    assert sum(len(x) for x in streams.values()) == 100


def test_reports_cover_the_eval_replay_as_soon_as_it_can_serve(tmp_path):
    entries = []
    run(tmp_path, entries=entries, steps=100, report_every=-1.0, log_every=-1.0)
    names = {name for _, name, _ in entries}
    assert {'report/error', 'eval/error', 'eval/score', 'eval/log/visits/max'} <= names


@pytest.mark.parametrize('at', [1, 3, 20, 45])
@pytest.mark.parametrize('where', ['steps', 'evaluation'])
def test_resumed_and_uninterrupted_runs_agree(tmp_path, where, at):
    run(tmp_path / 'whole', steps=120)
    if where == 'steps':
        run(tmp_path / 'halves', steps=2 * at)
    else:
        stop = parts.Once(at, lambda: signal.raise_signal(signal.SIGINT))
        run(tmp_path / 'halves', steps=120, before_eval_step=stop)
    run(tmp_path / 'halves', steps=120, report_every=-1.0)
    assert outcome(tmp_path / 'halves') == outcome(tmp_path / 'whole')


def test_another_number_of_evaluation_environments_starts_the_evaluation_anew(tmp_path):
    stop = parts.Once(3, lambda: signal.raise_signal(signal.SIGINT))
    run(tmp_path, eval_eps=50, before_eval_step=stop)
    assert load_part(tmp_path, 'evaluation')['results'] == [[], []]
    entries = []
    run(tmp_path, entries=entries, eval_envs=3, eval_eps=1, steps=10)
    assert [float(v) for _, k, v in entries if k == 'eval/episodes'] == [3.0]


def test_evaluation_without_environments_is_refused(tmp_path):
    with pytest.raises(ConfigError, match='run.eval_envs=0 leaves nothing'):
        run(tmp_path, eval_envs=0)
