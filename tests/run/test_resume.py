"""Which changes of options a resumed run accepts."""

import elements
import pytest

from embodied.core.errors import ConfigError
from embodied.run.shared.resume import Change, check_resume

CONFIG = elements.Config(
    script='train',
    task='toy_catch',
    logdir='/a',
    seed=0,
    batch_size=16,
    logger={'outputs': ['terminal', 'jsonl'], 'fps': 15},
    run={'steps': 1000, 'envs': 4, 'train_ratio': 32.0, 'log_every': 10.0},
    jax={'platform': 'auto', 'compute_dtype': 'bfloat16'},
    agent={'opt': {'lr': 4e-5}, 'eval_greedy': False},
)


def test_the_same_options_are_no_change():
    assert check_resume(CONFIG, elements.Config(CONFIG)) == []


@pytest.mark.parametrize(
    ('name', 'old', 'new'),
    [
        ('script', 'train', 'eval_only'),
        ('run.steps', 1000, 2000),
        ('run.envs', 4, 8),
        ('run.train_ratio', 32.0, 64.0),
        ('run.log_every', 10.0, 1.0),
        ('logger.outputs', ('terminal', 'jsonl'), ('jsonl',)),
        ('logdir', '/a', '/b'),
        ('jax.platform', 'auto', 'cpu'),
        ('agent.eval_greedy', False, True),
    ],
)
def test_harmless_changes_are_listed(name, old, new):
    assert check_resume(CONFIG, CONFIG.update({name: new})) == [Change(name, old, new)]


def test_a_former_name_is_no_change():
    before = elements.Config(CONFIG, run={'transport': 'zmq'})
    after = elements.Config(CONFIG, run={'transport': 'native'})
    assert check_resume(before, after) == []


@pytest.mark.parametrize(
    ('name', 'new', 'line'),
    [
        ('task', 'toy_reach', 'task: toy_catch -> toy_reach'),
        ('seed', 1, 'seed: 0 -> 1'),
        ('batch_size', 8, 'batch_size: 16 -> 8'),
        ('agent.opt.lr', 1e-4, 'agent.opt.lr: 4e-05 -> 0.0001'),
        ('jax.compute_dtype', 'float32', 'jax.compute_dtype: bfloat16 -> float32'),
    ],
)
def test_changes_of_meaning_are_refused_with_the_difference(name, new, line):
    changed = CONFIG.update({name: new, 'run.steps': 5})
    with pytest.raises(ConfigError) as info:
        check_resume(CONFIG, changed)
    assert line in str(info.value)
    assert 'run.steps' not in str(info.value)


def test_options_of_another_version_are_listed_but_not_refused():
    newer = elements.Config({**CONFIG.flat, 'agent.novelty': 1.0})
    assert check_resume(CONFIG, newer) == [Change('agent.novelty', None, 1.0)]
    assert check_resume(newer, CONFIG) == [Change('agent.novelty', 1.0, None)]


def test_a_change_reads_as_one_line():
    assert str(Change('run.envs', 4, 8)) == 'run.envs: 4 -> 8'
