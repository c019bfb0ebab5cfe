"""Evaluation of a trained agent."""

import signal

import numpy as np
import pytest
import run_parts as parts

import embodied
from embodied.core.checkpoint import load_part
from embodied.core.errors import CheckpointError
from embodied.logging import read_records


def train(logdir, **changes):
    agent = parts.Agent()
    embodied.run.train(
        lambda: agent,
        parts.SaveableReplay,
        parts.SaveableEnv,
        parts.Stream,
        parts.make_logger,
        parts.make_args(logdir, steps=100, **changes),
    )
    return agent


def evaluate(logdir, before_step=None, entries=None, **changes):
    agent = parts.Agent()
    result = embodied.run.eval_only(
        lambda: agent,
        lambda index: parts.Env(index, before_step),
        lambda: parts.make_logger(entries),
        parts.make_args(logdir, **{'steps': 1e6, **changes}),
    )
    return agent, result


def test_the_newest_save_of_the_folder_is_played(tmp_path):
    trained, entries = train(tmp_path), []
    agent, result = evaluate(tmp_path, entries=entries, envs=3, eval_eps=2)
    np.testing.assert_array_equal(agent.weights, trained.weights)
    assert agent.modes == {'eval'}
    assert agent.trained == []
    lines = [x for x in read_records(tmp_path / 'scores.jsonl') if x['eval']]
    assert sorted(x['env'] for x in lines) == [0, 0, 1, 1, 2, 2]
    assert result['score'] == np.mean([x['score'] for x in lines])
    assert result['length'] == np.mean([x['length'] for x in lines])
    assert result['episodes'] == 6
    logged = [(step, float(v)) for step, k, v in entries if k == 'eval/score']
    assert logged == [(100, result['score'])]


def test_another_run_can_be_named(tmp_path):
    trained = train(tmp_path / 'run')
    agent, _ = evaluate(tmp_path / 'eval', from_checkpoint=str(tmp_path / 'run'))
    np.testing.assert_array_equal(agent.weights, trained.weights)
    assert read_records(tmp_path / 'eval' / 'scores.jsonl')


def test_nothing_to_load_is_an_error_with_the_folder(tmp_path):
    with pytest.raises(CheckpointError, match=f'no checkpoint in {tmp_path}'):
        evaluate(tmp_path)


@pytest.mark.parametrize('way', ['steps', 'duration', 'signal'])
def test_limits_and_signals_end_it_with_what_there_is(tmp_path, way):
    train(tmp_path)
    changes = {
        'steps': {'steps': 60},
        'duration': {'duration': 0.1},
        'signal': {
            'before_step': parts.Once(60, lambda: signal.raise_signal(signal.SIGTERM))
        },
    }[way]
    _, result = evaluate(tmp_path, eval_eps=10**6, **changes)
    assert 0 < result['episodes'] < 10**6


def test_an_evaluation_without_a_finished_episode_says_so(tmp_path):
    train(tmp_path)
    assert evaluate(tmp_path, steps=1)[1] == {'episodes': 0}


def test_it_changes_nothing_in_the_run(tmp_path):
    train(tmp_path)
    before = load_part(tmp_path, 'progress')
    evaluate(tmp_path)
    assert load_part(tmp_path, 'progress') == before
