import pathlib
import re

import elements
import pytest

from dreamerv3 import config as config_lib
from embodied.core.errors import ConfigError

PRESETS = [name for name in config_lib.load_presets() if name != 'defaults']


def resolve(line=''):
    return config_lib.resolve(line.split())[0]


def warnings(line):
    return config_lib.resolve(line.split())[1]


@pytest.mark.parametrize(
    'line, name, value',
    [
        ('--batch_size 3', 'batch_size', 3),
        ('--batch_size=3', 'batch_size', 3),
        ('--batch_size 1e3', 'batch_size', 1000),
        ('--agent.opt.lr 1e-4', 'agent.opt.lr', 1e-4),
        ('--run.steps 1e6', 'run.steps', 1e6),
        ('--run.log_every -1', 'run.log_every', -1.0),
        ('--replay.prio.initial inf', 'replay.prio.initial', float('inf')),
        ('--run.debug True', 'run.debug', True),
        ('--replay.online false', 'replay.online', False),
        ('--task gym_CartPole-v1', 'task', 'gym_CartPole-v1'),
        ('--run.from_checkpoint=a=b', 'run.from_checkpoint', 'a=b'),
        ('--agent.enc.mults 2 3 4', 'agent.enc.mults', (2, 3, 4)),
        ('--agent.enc.mults 2,3', 'agent.enc.mults', (2, 3)),
        ('--agent.enc.mults [5]', 'agent.enc.mults', (5,)),
        ('--logger.outputs jsonl video', 'logger.outputs', ('jsonl', 'video')),
        ('--seed 1 --seed 2', 'seed', 2),
    ],
)
def test_flags_take_the_type_of_their_option(line, name, value):
    found = resolve(line)[name]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    'line, name, value',
    [
        ('--run.transport zmq', 'run.transport', 'native'),
        ('--script parallel_env --replica 3', 'run.first_env', 3),
        ('--script parallel_envs --replica 2', 'run.first_env', 2),
    ],
)
def test_former_names_of_options_work_and_say_the_name_of_today(line, name, value):
    assert resolve(line)[name] == value
    (note,) = warnings(line)
    assert f'is called {name}={value} now' in note


def test_patterns_set_every_option_they_match():
    config = resolve(r'--.*\.units 64 --agent\.(enc|dec)\.depth=3')
    parts = ('enc', 'dec', 'reward', 'cont', 'policy', 'value')
    assert {config.agent[part].units for part in parts} == {64}
    assert (config.agent.enc.depth, config.agent.dec.depth) == (3, 3)
    assert config.agent.dyn.hidden == 1024


def test_presets_apply_from_left_to_right_and_flags_last():
    assert resolve('--configs size12m').agent.dyn.deter == 2048
    assert resolve('--configs size12m size1m').agent.dyn.deter == 512
    assert resolve('--configs size1m size12m').agent.dyn.deter == 2048
    line = '--agent.dyn.deter 7 --configs size1m size12m'
    assert resolve(line).agent.dyn.deter == 7


def test_example_of_the_readme_resolves():
    line = '--configs crafter size12m --task x --run.envs 8 --agent.opt.lr 1e-4'
    config = resolve(line)
    assert (config.run.steps, config.run.train_ratio) == (1.1e6, 512.0)
    assert (config.run.envs, config.agent.dyn.hidden) == (8, 256)
    assert (config.task, config.agent.opt.lr) == ('x', 1e-4)


# deter, hidden, classes, depth, units as in the table of the paper's code.
SIZES = {
    'size1m': (512, 64, 4, 4, 64),
    'size12m': (2048, 256, 16, 16, 256),
    'size25m': (3072, 384, 24, 24, 384),
    'size50m': (4096, 512, 32, 32, 512),
    'size100m': (6144, 768, 48, 48, 768),
    'size200m': (8192, 1024, 64, 64, 1024),
    'size400m': (12288, 1536, 96, 96, 1536),
}


@pytest.mark.parametrize('name', SIZES)
def test_size_presets_hold_the_published_widths(name):
    agent = resolve(f'--configs {name}').agent
    widths = (agent.dyn.deter, agent.dyn.hidden, agent.dyn.classes)
    assert (*widths, agent.enc.depth, agent.enc.units) == SIZES[name]
    assert agent.dec.depth == agent.enc.depth
    for part in (agent.dec, agent.reward, agent.cont, agent.policy, agent.value):
        assert part.units == agent.enc.units


@pytest.mark.parametrize(
    'name, size', [('dmc_proprio', 'size1m'), ('dmc_paper', 'size12m')]
)
def test_control_presets_bring_their_size(name, size):
    assert resolve(f'--configs {name}').agent == resolve(f'--configs {size}').agent


def test_removed_presets_are_named_with_flags_of_the_same_settings():
    flags = {}
    for name in ('dmc_small_batch', 'atari100k_all_actions'):
        with pytest.raises(ConfigError, match=f"'{name}' was removed") as error:
            resolve(f'--configs {name}')
        flags[name] = str(error.value)[str(error.value).index('--') :]
    config = resolve(flags['dmc_small_batch'])
    assert config.agent == resolve('--configs size25m --agent.opt.lr 3e-4').agent
    assert (config.batch_size, config.batch_length) == (8, 32)
    assert (config.run.train_ratio, config.run.envs) == (64, 16)
    assert (config.task, config.run.steps) == ('dmc_walker_walk', 3e5)
    assert config.env == resolve('--configs dmc_paper').env
    config = resolve(flags['atari100k_all_actions'])
    assert config == resolve('--configs atari100k --env.atari100k.actions=all')


SETTINGS_OF_2023 = {
    'env.dmc.repeat': 1,
    'run.envs': 4,
    'run.train_ratio': 512.0,
    'replay.size': 1e6,
    'replay.online': False,
    'replay_context': 0,
    'agent.policy_grad': 'backprop',
    'agent.opt.kind': 'adam',
    'agent.opt.lr': 1e-4,
    'agent.opt.behavior_lr': 3e-5,
    'agent.opt.eps': 1e-8,
    'agent.opt.behavior_eps': 1e-5,
    'agent.opt.agc': 0.0,
    'agent.opt.warmup': 0,
    'agent.reward.twohot': 'symlog',
    'agent.value.twohot': 'symlog',
    'agent.cont.hard': True,
    'agent.dyn.deter': 512,
    'agent.dyn.stoch': 32,
    'agent.dyn.classes': 32,
    'agent.dyn.blocks': 1,
    'agent.policy.outscale': 1.0,
    'agent.loss_scales.dyn': 0.5,
    'agent.loss_scales.rep': 0.1,
    'agent.loss_scales.repval': 0.0,
    **{f'agent.{k}.layers': 2 for k in ('reward', 'cont', 'policy', 'value')},
    **{f'agent.{k}.units': 512 for k in ('reward', 'cont', 'policy', 'value')},
    **{f'agent.{k}.layers': 5 for k in ('enc', 'dec')},
    **{f'agent.{k}.units': 1024 for k in ('enc', 'dec')},
}


def test_the_preset_of_2023_holds_the_settings_of_its_vector_runs():
    options = resolve('--configs dmc_2023').flat
    assert {name: options[name] for name in SETTINGS_OF_2023} == SETTINGS_OF_2023


def test_default_size_is_200m():
    assert resolve().agent == resolve('--configs size200m').agent


# task, steps, train ratio, environments; None where the table leaves it open.
BENCHMARKS = {
    'atari': ('atari_pong', 5.1e7, 32, 16),
    'atari100k': ('atari100k_pong', 1.1e5, 256, 1),
    'crafter': ('crafter_reward', 1.1e6, 512, 1),
    'dmc_proprio': ('dmc_walker_walk', 1.1e6, 1024, 16),
    'dmc_paper': ('dmc_walker_walk', 3e5, 512, 16),
    'dmc_2023': ('dmc_walker_walk', 5e5, 512, 4),
    'dmc_vision': ('dmc_walker_walk', 1.1e6, 256, 16),
    'procgen': ('procgen_coinrun', 1.1e8, 64, 16),
    'dmlab': ('dmlab_explore_goal_locations_small', 2.6e7, 32, 16),
    'minecraft': ('minecraft_diamond', 1e8, 32, 16),
    'bsuite': ('bsuite_mnist/0', None, 1024, 1),
}


@pytest.mark.parametrize('name', BENCHMARKS)
def test_benchmark_presets_hold_the_published_settings(name):
    task, steps, ratio, envs = BENCHMARKS[name]
    config = resolve(f'--configs {name}')
    assert (config.task, config.run.train_ratio, config.run.envs) == (task, ratio, envs)
    assert steps in (None, config.run.steps)
    assert (config.batch_size, config.batch_length) == (16, 64)
    assert config.report_length == 32


ATARI = {'repeat': 4, 'noops': 30, 'pooling': 2, 'lives': 'unused', 'length': 108_000}
SETTINGS = {
    'atari': ATARI | {'size': 96, 'gray': True, 'sticky': True, 'actions': 'all'},
    'atari100k': ATARI
    | {'size': 64, 'gray': False, 'sticky': False, 'actions': 'needed'},
    'crafter': {'size': 64},
    'dmc_proprio': {'proprio': True, 'image': False, 'repeat': 1},
    'dmc_paper': {'proprio': True, 'image': False, 'repeat': 2},
    'dmc_vision': {'proprio': False, 'image': True, 'repeat': 1, 'size': 64},
    'procgen': {'size': 96},
    'dmlab': {'size': 64, 'repeat': 4},
    'minecraft': {'size': 64, 'break_speed': 100.0, 'length': 36_000},
}


@pytest.mark.parametrize('name', SETTINGS)
def test_benchmark_presets_hold_the_published_environments(name):
    config = resolve(f'--configs {name}')
    settings = config.env[config.task.partition('_')[0]]
    assert {key: settings[key] for key in SETTINGS[name]} == SETTINGS[name]
    assert settings.get('resize', 'bilinear') == 'bilinear'


@pytest.mark.parametrize('name', PRESETS)
def test_every_preset_resolves_and_changes_something(name):
    changed = resolve(f'--configs {name}') != resolve()
    assert changed or name == 'size200m'


@pytest.mark.parametrize(
    'line, parts',
    [
        (
            '--agent.opt.learning_rate 1',
            ["'--agent.opt.learning_rate'", 'did you mean'],
        ),
        ('--lr 1', ["'--lr'", '--agent.opt.lr']),
        ('--run.env 3', ["'--run.env'", '--run.envs']),
        ('--confgs tiny', ["'--confgs'", '--configs']),
        ('--zzz 3', ["'--zzz'", '`dreamer config`']),
        ('--configs crafters', ["'crafters'", 'did you mean crafter', 'size12m']),
        (r'--.*\.unis 3', ['matches no option']),
        ('--.*( 3', ['not a valid pattern']),
        ('--agent.opt 3', ['group', 'agent.opt.lr']),
        ('--batch_size 3.5', ['batch_size', 'whole number', "'3.5'", '16']),
        ('--batch_size three', ['whole number', "'three'"]),
        ('--batch_size inf', ['whole number']),
        ('--batch_size 3 4', ['one value', "'3 4'"]),
        ('--run.debug 1', ['True or False', "'1'"]),
        ('--agent.opt.lr fast', ['a number', "'fast'", '4e-05']),
        ('--agent.enc.mults 2 x', ['whole number', "'x'"]),
        (r'--agent\.enc\..* 1.5', ['agent.enc.depth', 'whole number']),
        ('--task', ['--task needs a value']),
        ('train', ["'train'", 'follows no flag']),
        ('--jax.platform gpu', ['jax.platform', "'gpu'", 'auto, cpu, cuda']),
        ('--script trian', ["'trian'", 'did you mean train', 'eval_only']),
        ('--logger.outputs jsonl wandbb', ["'wandbb'", 'terminal, jsonl, video']),
        ('--replay.size 0', ['replay.size', 'at least 1']),
        ('--replay.size nan', ['replay.size', 'at least 1']),
    ],
)
def test_mistakes_are_refused_with_what_was_given_and_what_is_allowed(line, parts):
    with pytest.raises(ConfigError) as info:
        resolve(line)
    message = str(info.value).lower()
    for part in parts:
        assert part.lower() in message


@pytest.mark.parametrize(
    'line, names',
    [
        ('--configs crafter --run.train_ratio 64', ['run.train_ratio']),
        ('--configs crafter --run.train_ratio 512', []),
        ('--configs crafter size12m', []),
        ('--configs crafter --run.envs 8', []),
        ('--configs crafter size12m --agent.dyn.deter 512', ['agent.dyn.deter']),
        ('--configs dmc_proprio --agent.enc.units 32', ['agent.enc.units']),
        ('--configs size12m --agent.dyn.deter 512', []),
        ('--run.train_ratio 64', []),
    ],
)
def test_flags_that_break_a_benchmark_are_warned_about(line, names):
    found = warnings(line)
    assert [text.split()[0] for text in found] == names
    for text in found:
        assert '\n' not in text
        assert line.split()[1] in text


def test_printed_config_reads_back_the_same(tmp_path):
    config = resolve('--configs tiny --task a:b/c --agent.enc.mults 2 --seed 3')
    text = config_lib.dump(config)
    (tmp_path / 'config.yaml').write_text(text)
    loaded = elements.Config.load(tmp_path / 'config.yaml')
    types = lambda flat: {name: type(value) for name, value in flat.items()}
    assert loaded.flat == config.flat
    assert types(loaded.flat) == types(config.flat)
    groups = {name.rpartition('.')[0] for name in config.flat}
    parents = {'.'.join(g.split('.')[:n]) for g in groups for n in range(1, 9)}
    assert len(text.splitlines()) == len(config.flat) + len(parents - {''})


def test_each_option_has_one_line_and_a_comment():
    text = config_lib.CONFIGS.read_text()
    block = text.split('\ndefaults:\n')[1].split('\nsize1m:')[0]
    lines = [line for line in block.splitlines() if line.strip()]
    options = [line for line in lines if line.split('#')[0].rstrip()[-1] != ':']
    assert len(options) == len(resolve().flat)
    assert [line for line in options if ' # ' not in line] == []


def test_commands_of_the_quickstart_resolve():
    guide = pathlib.Path(__file__).parents[3] / 'docs' / 'quickstart.md'
    lines = re.findall(r'^dreamer \w+(?: [^#\n]*)?', guide.read_text(), re.MULTILINE)
    commands = [line.replace('...', '').split()[1:] for line in lines]
    assert len(commands) >= 6
    for name, *flags in commands:
        if name in config_lib.CHOICES['script']:
            config_lib.resolve(flags)
