"""The examples run as they are."""

import pathlib
import runpy
import sys

import optuna
import pytest
from PIL import Image

import dreamerv3

EXAMPLES = pathlib.Path(__file__).parents[3] / 'examples'


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Runs an example as a program in an empty folder; what it prints."""

    def call(script, *args):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, 'argv', [script, *map(str, args)])
        runpy.run_path(str(EXAMPLES / script), run_name='__main__')
        return capsys.readouterr().out

    return call


def test_act_plays_an_episode(run, catch_run):
    assert run('act.py', catch_run).strip() in ('score 1.0', 'score -1.0')


def test_imagine_draws_truth_and_model(run, catch_run, tmp_path):
    assert 'rewards' in run('imagine.py', catch_run)
    with Image.open(tmp_path / 'imagined.png') as image:
        # An episode has 8 steps, 3 of them seen; two rows of 16 x 16 pixels.
        assert image.size == (5 * 16, 2 * 16)


def test_evaluate_prints_the_scores(run, catch_run):
    assert "'episodes': 8, 'mean'" in run('evaluate.py', catch_run)


def test_own_environment_is_trained_on_and_played(run):
    # Too few steps for an update, which would have to be compiled: 8 of each of the
    # 4 environments, whose episodes have 11.
    out = run('own_environment.py', 32, 'debug')
    assert '0 episodes' in out
    assert 'The guess for 2 is ' in out


def test_a_search_with_optuna_goes_on_in_its_folder(run, tmp_path):
    # Too few steps for an update, as above: 20 of each of the 4 environments.
    out = run('optuna_search.py', 'found', 1, 80, 'debug')
    assert "{'COMPLETE': 1}" in out
    assert "with {'agent.opt.lr':" in out
    study = optuna_search()(tmp_path / 'found', 2, 80, 'debug')
    assert [trial.state.name for trial in study.trials] == ['COMPLETE'] * 3
    for number, trial in enumerate(study.trials):
        config = dreamerv3.Run(tmp_path / 'found' / f'trial-{number}').config
        assert config.agent.opt.lr == trial.params['agent.opt.lr']


def test_trials_without_prospects_are_pruned(tmp_path):
    hopeless = optuna.pruners.ThresholdPruner(lower=2.0)  # of scores up to 1
    study = optuna_search()(tmp_path, 2, 1e6, 'debug', hopeless)
    assert [trial.state.name for trial in study.trials] == ['PRUNED', 'PRUNED']
    for number in range(2):
        run = dreamerv3.Run(tmp_path / f'trial-{number}')
        assert run.outcome == ('stopped', 'on_log')
        assert 0 < run.steps < 1e6


def optuna_search():
    """The search of the example, with agents that need not be compiled."""
    module = runpy.run_path(str(EXAMPLES / 'optuna_search.py'))
    module['OPTIONS']['random_agent'] = True
    return module['search']


@pytest.mark.parametrize('path', sorted(EXAMPLES.glob('*.py')), ids=lambda x: x.name)
def test_every_example_says_how_it_is_started(path):
    assert f'python examples/{path.name}' in path.read_text()
