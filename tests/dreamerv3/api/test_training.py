"""Training from Python, and what runs record about themselves."""

import numpy as np
import pytest

import dreamerv3
from dreamerv3 import provenance
from dreamerv3.main import main
from embodied import envs
from embodied.core.errors import ConfigError
from embodied.logging import read_records

RANDOM = {'random_agent': True, 'logger.outputs': 'jsonl', 'run.log_every': -1}


def test_a_function_of_the_caller_is_trained_on_and_continued(tmp_path):
    size = 16

    def make_env(seed):
        return envs.Catch(size, seed=seed)

    call = {'logdir': tmp_path / 'run', 'configs': ['debug'], 'options': RANDOM}
    run = dreamerv3.train(make_env, steps=80, **call)
    assert run.logdir == tmp_path / 'run'
    assert run.steps == 80
    assert run.config.run.envs == 2
    assert len(run.scores) == len(run.episodes) == 10
    assert set(run.scores) <= {-1, 1}
    run = dreamerv3.train(make_env, steps=160, **call)
    assert run.steps == 160
    assert len(dreamerv3.Run(tmp_path / 'run').scores) == 20
    steps, values = run.metric('episode/length')
    assert (values == 7).all() and len(steps) == len(values)
    with pytest.raises(ConfigError, match='episode/score'):
        run.metric('episode/scores')


def test_named_tasks_can_be_trained_on_with_any_script(tmp_path):
    run = dreamerv3.train(
        task='toy_catch',
        logdir=tmp_path,
        steps=80,
        script='parallel',
        configs=['tiny', 'debug'],
        options=RANDOM,
    )
    assert run.config.script == 'parallel'
    assert len(run.scores)


@pytest.mark.parametrize('given', [{}, {'make_env': envs.Catch, 'task': 'toy_catch'}])
def test_there_is_one_environment_to_train_on(given):
    with pytest.raises(ConfigError, match='either make_env'):
        dreamerv3.train(**given)


def test_runs_record_what_they_were_made_with(tmp_path):
    flags = ['--configs', 'tiny', 'debug', '--run.steps=40', '--random_agent=True']
    for _ in range(2):
        assert main(['train', *flags, '--logdir', str(tmp_path)]) == 0
    first, second = read_records(tmp_path / 'provenance.jsonl')
    assert first['packages']['numpy'] == np.__version__
    assert first['cores'] >= 1 and first['memory_gb'] > 0
    assert first.keys() == second.keys() == provenance.describe().keys()
    assert len(first['commit'].rstrip('+')) in (0, 40)
