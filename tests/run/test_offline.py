"""Training from recorded data: how long, with which evaluations, exact resume."""

import signal

import elements
import numpy as np
import pytest
import run_parts as parts

import embodied
from embodied.core.checkpoint import load_part
from embodied.core.errors import ConfigError
from embodied.logging import read_records

COMPARED = ('agent', 'replay', 'learner', 'schedule', 'evaluated')


def recorded():
    """Replay of 60 steps that were recorded before."""
    replay, env = parts.SaveableReplay(), parts.Env(0)
    obs = env.step({'reset': True, 'action': 0})
    for _ in range(60):
        step = {k: v for k, v in obs.items() if not k.startswith('log/')}
        replay.add({**step, 'action': np.int32(1), 'latent': np.float32(0)})
        obs = env.step({'reset': obs['is_last'], 'action': 1})
    return replay


def run(logdir, entries=None, agent=None, make_env=parts.Env, **changes):
    agent = agent or parts.Agent()
    outcome = embodied.run.offline(
        lambda: agent,
        recorded,
        make_env,
        parts.Stream,
        lambda: parts.make_logger(entries),
        parts.make_args(logdir, **{'eval_every': 20, 'updates': 50, **changes}),
    )
    return agent, outcome


def test_it_makes_so_many_updates_and_never_acts_in_training(tmp_path):
    agent, outcome = run(tmp_path)
    assert len(agent.trained) == 50
    assert agent.modes == {'eval'}
    assert outcome == ('finished', 'run.updates')
    assert load_part(tmp_path, 'progress')['updates'] == 50


def test_steps_of_the_logger_are_updates_whatever_run_steps_says(tmp_path):
    entries = []
    run(tmp_path, entries, steps=7, log_every=-1.0)
    steps = [step for step, name, _ in entries if name == 'train/updates']
    assert steps[-1] == 50
    assert [float(v) for _, k, v in entries if k == 'train/updates'] == steps


def test_evaluations_come_at_the_start_in_between_and_at_the_end(tmp_path):
    entries = []
    run(tmp_path, entries)
    steps = [step for step, name, _ in entries if name == 'eval/score']
    assert steps == [0, 20, 40, 50]
    scores = read_records(tmp_path / 'scores.jsonl')
    assert {x['eval'] for x in scores} == {True}
    assert len(scores) >= 4 * 4


def test_an_evaluation_at_the_last_update_is_not_repeated(tmp_path):
    entries = []
    run(tmp_path, entries, updates=40)
    assert [s for s, name, _ in entries if name == 'eval/score'] == [0, 20, 40]


@pytest.mark.parametrize('changes', [{'make_env': None}, {'eval_envs': 0}])
def test_without_a_task_there_are_updates_only(tmp_path, changes):
    agent, _ = run(tmp_path, **changes)
    assert len(agent.trained) == 50
    assert not agent.modes


def test_the_time_limit_ends_it(tmp_path):
    _, outcome = run(tmp_path, updates=0, duration=0.2)
    assert outcome == ('stopped', 'run.duration')


def test_a_signal_ends_it_with_a_save_from_which_it_goes_on_exactly(tmp_path):
    run(tmp_path / 'whole', make_env=None)
    stop = parts.Once(17, lambda: signal.raise_signal(signal.SIGINT))

    class Stopping(parts.Agent):
        def train(self, carry, batch):
            stop()
            return super().train(carry, batch)

    agent, outcome = run(tmp_path / 'parts', agent=Stopping(), make_env=None)
    assert outcome == ('stopped', 'SIGINT')
    assert len(agent.trained) == 17
    agent, _ = run(tmp_path / 'parts', make_env=None)
    assert len(agent.trained) == 33
    saved = [
        {name: load_part(tmp_path / folder, name) for name in COMPARED}
        for folder in ('whole', 'parts')
    ]
    whole, resumed = (elements.tree.map(repr, x) for x in saved)
    assert whole == resumed


def test_evaluations_may_be_added_when_it_goes_on(tmp_path):
    run(tmp_path, eval_envs=0)
    entries = []
    run(tmp_path, entries, updates=60)
    assert [s for s, name, _ in entries if name == 'eval/score'] == [50, 60]


def test_a_finished_run_says_so_and_goes_on_with_a_higher_limit(tmp_path, capsys):
    run(tmp_path)
    agent, outcome = run(tmp_path)
    assert not agent.trained
    assert outcome == ('finished', 'run.updates')
    assert 'Raise run.updates or run.duration' in capsys.readouterr().out
    agent, _ = run(tmp_path, updates=70)
    assert len(agent.trained) == 20


def test_negative_updates_are_refused(tmp_path):
    with pytest.raises(ConfigError, match='updates=-1 must be at least 0'):
        run(tmp_path, updates=-1)
