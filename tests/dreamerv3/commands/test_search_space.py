"""Search spaces: grids, lists and draws, and what is refused."""

import math

import numpy as np
import pytest

from dreamerv3 import config as config_lib
from dreamerv3.commands.sweep.space import settings_of
from embodied.core.errors import ConfigError

OPTIONS = config_lib.load_presets()['defaults']
LR, ACTENT = 'agent.opt.lr', 'agent.actent'


def settings(*varied, **kwargs):
    return [dict(setting) for setting in settings_of(varied, OPTIONS, **kwargs)]


def test_nothing_varied_is_one_setting():
    assert settings() == settings(in_step=True) == [{}]


def test_a_grid_has_each_value_with_each():
    found = settings(f'{ACTENT}=1e-4,3e-4', 'run.train_ratio=32,64')
    assert [tuple(x.values()) for x in found] == [
        ('1e-4', '32'),
        ('1e-4', '64'),
        ('3e-4', '32'),
        ('3e-4', '64'),
    ]
    assert list(found[0]) == [ACTENT, 'run.train_ratio']


def test_a_list_takes_values_in_step():
    found = settings(f'{ACTENT}=1e-4,3e-4', 'run.train_ratio=32,64', in_step=True)
    assert [tuple(x.values()) for x in found] == [('1e-4', '32'), ('3e-4', '64')]
    with pytest.raises(ConfigError, match='agent.actent has 1, batch_size has 2'):
        settings(f'{ACTENT}=1', 'batch_size=4,8', in_step=True)


def test_the_only_option_that_ends_like_a_name_is_meant():
    assert settings('opt.lr=1e-4') == [{LR: '1e-4'}]
    assert settings('lr=1') == [{LR: '1'}]
    assert settings('units=64') == [{'units': '64'}]  # many: options refuse it
    assert settings(r'.*\.units=64') == [{r'.*\.units': '64'}]
    assert settings('configs=size1m') == [{'configs': 'size1m'}]


def test_draws_lie_in_their_range_and_are_spread_by_its_scale():
    log = settings('opt.lr=log:1e-5..1e-3', draws=400)
    exponents = np.array([math.log10(float(x[LR])) for x in log])
    assert -5 <= exponents.min() < -4.9 and -3.1 < exponents.max() <= -3
    assert abs(exponents.mean() + 4) < 0.1  # half of them below 1e-4
    flat = settings(f'{ACTENT}=0..2', draws=400)
    values = np.array([float(x[ACTENT]) for x in flat])
    assert 0 <= values.min() < 0.05 and 1.95 < values.max() <= 2
    assert abs(values.mean() - 1) < 0.1


def test_whole_numbers_are_drawn_for_options_that_are_whole():
    found = settings('batch_size=4..6', draws=3)
    assert {x['batch_size'] for x in found} == {'4', '5', '6'}  # each once
    found = settings('batch_size=log:1..1000', draws=50)
    sizes = np.array([int(x['batch_size']) for x in found])
    assert sizes.min() >= 1 and sizes.max() <= 1000
    assert np.median(sizes) < 100


def test_more_draws_begin_with_the_same_ones():
    varied = 'opt.lr=log:1e-5..1e-3', 'batch_size=4,8'
    assert settings(*varied, draws=20)[:5] == settings(*varied, draws=5)


def test_paths_with_dots_are_no_ranges():
    name = 'run.from_checkpoint'
    assert settings(f'{name}=../a') == [{name: '../a'}]


@pytest.mark.parametrize(
    ('varied', 'draws', 'words'),
    [
        ('actent', 0, 'has no values'),
        ('actent=', 0, 'has no values'),
        ('actent=1,,2', 0, 'has no values'),
        ('actent=1,1', 0, 'a value twice'),
        ('task=toy_catch', 0, 'varied by --task'),
        ('seed=1,2', 0, 'varied by --seeds'),
        ('actent=1..2', 0, '--random N'),
        ('actent=2..1', 3, 'LOW must be below HIGH'),
        ('actent=log:0..1', 3, 'above 0'),
        ('actent=log:1,2', 3, 'no range'),
        ('batch_size=0.5..3', 3, 'whole number'),
        ('random_agent=0..1', 3, 'only numbers'),
        ('batch_size=1..2', 3, 'only about 2'),
    ],
)
def test_spaces_that_make_no_sense_are_refused(varied, draws, words):
    with pytest.raises(ConfigError, match=words):
        settings(varied, draws=draws)


def test_draws_need_something_to_vary_and_options_come_once():
    with pytest.raises(ConfigError, match='--vary names'):
        settings(draws=3)
    with pytest.raises(ConfigError, match='agent.opt.lr twice'):
        settings('opt.lr=1,2', 'agent.opt.lr=3')
